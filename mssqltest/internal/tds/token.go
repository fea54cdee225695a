package tds

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// Tokens of a response (MS-TDS 2.2.7).
const (
	tokenReturnStatus = 0x79
	tokenColMetadata  = 0x81
	tokenError        = 0xaa
	tokenInfo         = 0xab
	tokenReturnValue  = 0xac
	tokenLoginAck     = 0xad
	tokenRow          = 0xd1
	tokenNBCRow       = 0xd2
	tokenEnvChange    = 0xe3
	tokenDone         = 0xfd
	tokenDoneProc     = 0xfe
	tokenDoneInProc   = 0xff
)

// Status bits of the DONE tokens.
const (
	doneMore        = 0x001
	doneError       = 0x002
	doneCount       = 0x010
	doneAttention   = 0x020
	doneServerError = 0x100
)

// Kinds of ENVCHANGE.
const (
	envDatabase   = 1
	envLanguage   = 2
	envPacketSize = 4
	envCollation  = 7
	envTxBegin    = 8
	envTxCommit   = 9
	envTxRollback = 10
	envReset      = 18
)

// errorClass is the lowest class of an error; lower classes are information.
const errorClass = 11

// fatalClass is the lowest class that ends the connection.
const fatalClass = 20

// maxMessageUnits bounds the text of an error, so that the token's length fits its two bytes.
const maxMessageUnits = 8000

func appendBVarChar(b []byte, s string) []byte {
	s = truncateUnits(s, 255)
	return appendUTF16(append(b, byte(utf16Units(s))), s)
}

func appendUSVarChar(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(utf16Units(s)))
	return appendUTF16(b, s)
}

// sized appends a token whose body is preceded by its length in two bytes.
func sized(b []byte, token byte, body func([]byte) []byte) []byte {
	b = append(b, token, 0, 0)
	at := len(b)
	b = body(b)
	binary.LittleEndian.PutUint16(b[at-2:], uint16(len(b)-at))
	return b
}

// appendMessage appends an ERROR or INFO token.
func appendMessage(b []byte, server string, e *sqltype.Error) []byte {
	token := byte(tokenInfo)
	if e.Class >= errorClass {
		token = tokenError
	}
	return sized(b, token, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Number))
		b = append(b, e.State, e.Class)
		b = appendUSVarChar(b, truncateUnits(e.Message, maxMessageUnits))
		b = appendBVarChar(b, server)
		b = appendBVarChar(b, e.Proc)
		return binary.LittleEndian.AppendUint32(b, uint32(e.Line))
	})
}

// done is a DONE, DONEPROC or DONEINPROC.
type done struct {
	token   byte
	status  uint16
	command Command
	rows    uint64
}

func appendDone(b []byte, d done) []byte {
	b = binary.LittleEndian.AppendUint16(append(b, d.token), d.status)
	b = binary.LittleEndian.AppendUint16(b, uint16(d.command))
	return binary.LittleEndian.AppendUint64(b, d.rows)
}

func appendColumns(b []byte, columns []sqltype.Column) ([]byte, error) {
	b = binary.LittleEndian.AppendUint16(append(b, tokenColMetadata), uint16(len(columns)))
	for _, c := range columns {
		if err := checkType(c.Type); err != nil {
			return b, fmt.Errorf("column %q: %w", c.Name, err)
		}
		b = appendUserTypeAndFlags(b, c.Nullable)
		if token := fixedToken(c); token != 0 {
			b = append(b, token)
		} else {
			b = appendTypeInfo(b, c.Type)
		}
		b = appendBVarChar(b, c.Name)
	}
	return b, nil
}

func appendUserTypeAndFlags(b []byte, nullable bool) []byte {
	const flagNullable, flagMaybeWritable = 0x01, 0x08
	flags := byte(flagMaybeWritable)
	if nullable {
		flags |= flagNullable
	}
	return append(b, 0, 0, 0, 0, flags, 0)
}

// appendRow appends a row in the shorter of its two forms: ROW, or NBCROW,
// where a bitmap marks the values that are NULL.
func appendRow(b []byte, columns []sqltype.Column, values []sqltype.Value) ([]byte, error) {
	if len(values) != len(columns) {
		return b, fmt.Errorf("%d values for %d columns", len(values), len(columns))
	}
	saved := -(len(columns) + 7) / 8
	for i, v := range values {
		if v == nil {
			if fixedToken(columns[i]) != 0 {
				return b, fmt.Errorf("column %q: NULL in a column that cannot have one", columns[i].Name)
			}
			saved += nullBytes(columns[i].Type)
		}
	}
	compact := saved > 0
	if compact {
		b = append(b, tokenNBCRow)
		at := len(b)
		b = append(b, make([]byte, (len(columns)+7)/8)...)
		for i, v := range values {
			if v == nil {
				b[at+i/8] |= 1 << (i % 8)
			}
		}
	} else {
		b = append(b, tokenRow)
	}
	for i, v := range values {
		if v == nil && compact {
			continue
		}
		var err error
		at := len(b)
		if b, err = appendValue(b, columns[i].Type, v); err != nil {
			return b, fmt.Errorf("column %q: %w", columns[i].Name, err)
		}
		if fixedToken(columns[i]) != 0 {
			b = slices.Delete(b, at, at+1) // its length
		}
	}
	return b, nil
}

// appendReturnValue appends the value of an output parameter.
func appendReturnValue(b []byte, ordinal uint16, p Param) ([]byte, error) {
	const statusOutput = 1
	if err := checkType(p.Type); err != nil {
		return b, fmt.Errorf("parameter %q: %w", p.Name, err)
	}
	b = binary.LittleEndian.AppendUint16(append(b, tokenReturnValue), ordinal)
	b = append(appendBVarChar(b, p.Name), statusOutput)
	b = appendTypeInfo(appendUserTypeAndFlags(b, true), p.Type)
	b, err := appendValue(b, p.Type, p.Value)
	if err != nil {
		return b, fmt.Errorf("parameter %q: %w", p.Name, err)
	}
	return b, nil
}

func appendEnvText(b []byte, kind byte, now, before string) []byte {
	return sized(b, tokenEnvChange, func(b []byte) []byte {
		return appendBVarChar(appendBVarChar(append(b, kind), now), before)
	})
}

func appendEnvBytes(b []byte, kind byte, now, before []byte) []byte {
	return sized(b, tokenEnvChange, func(b []byte) []byte {
		b = append(append(b, kind, byte(len(now))), now...)
		return append(append(b, byte(len(before))), before...)
	})
}

func appendEnvPacketSize(b []byte, now, before int) []byte {
	return appendEnvText(b, envPacketSize, strconv.Itoa(now), strconv.Itoa(before))
}

// appendEnvTx appends the beginning or the end of transaction id.
func appendEnvTx(b []byte, kind byte, id uint64) []byte {
	descriptor := binary.LittleEndian.AppendUint64(nil, id)
	if kind == envTxBegin {
		return appendEnvBytes(b, kind, descriptor, nil)
	}
	return appendEnvBytes(b, kind, nil, descriptor)
}
