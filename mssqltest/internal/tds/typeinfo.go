package tds

import (
	"encoding/binary"
	"math"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// Type tokens (MS-TDS 2.2.5.4).
const (
	typeNull           = 0x1f
	typeImage          = 0x22
	typeText           = 0x23
	typeGUID           = 0x24
	typeIntN           = 0x26
	typeDateN          = 0x28
	typeTimeN          = 0x29
	typeDateTime2N     = 0x2a
	typeDateTimeOffset = 0x2b
	typeInt1           = 0x30
	typeBit            = 0x32
	typeInt2           = 0x34
	typeInt4           = 0x38
	typeDateTime4      = 0x3a
	typeFloat4         = 0x3b
	typeDateTime       = 0x3d
	typeFloat8         = 0x3e
	typeNText          = 0x63
	typeBitN           = 0x68
	typeDecimalN       = 0x6a
	typeNumericN       = 0x6c
	typeFloatN         = 0x6d
	typeDateTimeN      = 0x6f
	typeInt8           = 0x7f
	typeBigVarBinary   = 0xa5
	typeBigVarChar     = 0xa7
	typeBigBinary      = 0xad
	typeBigChar        = 0xaf
	typeNVarChar       = 0xe7
	typeNChar          = 0xef
	typeXML            = 0xf1
)

const (
	maxShortBytes = 8000   // of a char or binary type that is not (max)
	sizeMax       = 0xffff // the length that means (max)
)

// lengthForm is how a value's length is written.
type lengthForm uint8

const (
	fixedLength lengthForm = iota // none: the type determines it, and there is no NULL
	byteLength                    // one byte, 0 is NULL
	shortLength                   // two bytes, 0xFFFF is NULL
	longLength                    // four bytes, 0xFFFFFFFF is NULL
	plpLength                     // partially length-prefixed chunks
)

// wireType is a TYPE_INFO as it was received.
type wireType struct {
	token byte
	form  lengthForm
	bytes int // the greatest length of a value; for a fixed type, its length
	t     sqltype.Type
}

// unsupported is a type of TDS that the emulator does not support: the client receives an error, and the connection
// continues.
type unsupported struct{ token byte }

func (u unsupported) Error() string { return "data type not known to the emulator" }

// typeInfo reads a TYPE_INFO. Unsupported types set the decoder's error to unsupported, because their length cannot be
// known.
func (d *decoder) typeInfo() wireType {
	w := wireType{token: d.u8()}
	switch w.token {
	case typeNull:
		// A NULL without a type: drivers declare it nvarchar(1).
		w.t = sqltype.Type{Kind: sqltype.NVarChar, Size: 1}
	case typeInt1, typeInt2, typeInt4, typeInt8, typeBit, typeFloat4, typeFloat8,
		typeDateTime4, typeDateTime:
		w.bytes, w.t = fixedType(w.token)
	case typeIntN, typeBitN, typeFloatN, typeDateTimeN, typeGUID:
		w.form, w.bytes = byteLength, int(d.u8())
		w.t = d.sizedType(w.token, w.bytes)
	case typeDecimalN, typeNumericN:
		w.form, w.bytes = byteLength, int(d.u8())
		w.t = sqltype.Type{Kind: sqltype.Decimal, Precision: d.u8(), Scale: d.u8()}
		if w.t.Precision < 1 || w.t.Precision > maxPrecision || w.t.Scale > w.t.Precision {
			d.fail("decimal(%d, %d)", w.t.Precision, w.t.Scale)
		}
	case typeDateN:
		w.form, w.bytes, w.t = byteLength, 3, sqltype.Type{Kind: sqltype.Date}
	case typeTimeN, typeDateTime2N, typeDateTimeOffset:
		d.clockType(&w)
	case typeBigVarBinary, typeBigVarChar, typeBigBinary, typeBigChar, typeNVarChar, typeNChar:
		d.textType(&w)
	case typeImage, typeText, typeNText:
		d.longType(&w)
	case typeXML:
		w.form, w.t = plpLength, sqltype.Type{Kind: sqltype.XML}
		if d.u8() != 0 { // a schema collection: database, schema, name
			_, _, _ = d.bVarChar(), d.bVarChar(), d.usVarChar()
		}
	default:
		if d.err == nil {
			d.err, d.b = unsupported{w.token}, nil
		}
	}
	return w
}

func fixedType(token byte) (int, sqltype.Type) {
	switch token {
	case typeInt1:
		return 1, sqltype.Type{Kind: sqltype.TinyInt}
	case typeInt2:
		return 2, sqltype.Type{Kind: sqltype.SmallInt}
	case typeInt4:
		return 4, sqltype.Type{Kind: sqltype.Int}
	case typeInt8:
		return 8, sqltype.Type{Kind: sqltype.BigInt}
	case typeBit:
		return 1, sqltype.Type{Kind: sqltype.Bit}
	case typeFloat4:
		return 4, sqltype.Type{Kind: sqltype.Float}
	case typeFloat8:
		return 8, sqltype.Type{Kind: sqltype.Float}
	case typeDateTime4:
		return 4, sqltype.Type{Kind: sqltype.SmallDateTime}
	default: // typeDateTime
		return 8, sqltype.Type{Kind: sqltype.DateTime}
	}
}

// sizedType returns the type of a nullable token whose length selects one of the fixed types.
func (d *decoder) sizedType(token byte, size int) sqltype.Type {
	var fixed byte
	switch int(token)<<8 | size {
	case typeIntN<<8 | 1:
		fixed = typeInt1
	case typeIntN<<8 | 2:
		fixed = typeInt2
	case typeIntN<<8 | 4:
		fixed = typeInt4
	case typeIntN<<8 | 8:
		fixed = typeInt8
	case typeBitN<<8 | 1:
		fixed = typeBit
	case typeFloatN<<8 | 4:
		fixed = typeFloat4
	case typeFloatN<<8 | 8:
		fixed = typeFloat8
	case typeDateTimeN<<8 | 4:
		fixed = typeDateTime4
	case typeDateTimeN<<8 | 8:
		fixed = typeDateTime
	case typeGUID<<8 | 16, typeGUID << 8:
		return sqltype.Type{Kind: sqltype.UniqueIdentifier}
	default:
		d.fail("type 0x%02x of %d bytes", token, size)
		return sqltype.Type{}
	}
	_, t := fixedType(fixed)
	return t
}

func (d *decoder) clockType(w *wireType) {
	scale := d.u8()
	if scale > 7 {
		d.fail("scale %d of a time type", scale)
		return
	}
	w.form, w.bytes, w.t.Scale = byteLength, clockBytes(scale), scale
	switch w.token {
	case typeTimeN:
		w.t.Kind = sqltype.Time
	case typeDateTime2N:
		w.t.Kind = sqltype.DateTime2
		w.bytes += 3
	default:
		w.t.Kind = sqltype.DateTimeOffset
		w.bytes += 5
	}
}

func (d *decoder) textType(w *wireType) {
	w.form, w.bytes = shortLength, int(d.u16())
	w.t.Size = w.bytes
	switch w.token {
	case typeBigVarBinary:
		w.t.Kind = sqltype.VarBinary
	case typeBigBinary:
		w.t.Kind = sqltype.Binary
	case typeBigVarChar:
		w.t.Kind = sqltype.VarChar
	case typeBigChar:
		w.t.Kind = sqltype.Char
	case typeNVarChar:
		w.t.Kind, w.t.Size = sqltype.NVarChar, w.bytes/2
	default:
		w.t.Kind, w.t.Size = sqltype.NChar, w.bytes/2
	}
	if w.token != typeBigVarBinary && w.token != typeBigBinary {
		d.bytes(len(collation))
	}
	switch {
	case w.bytes == sizeMax:
		w.form, w.t.Size = plpLength, sqltype.Max
	case w.bytes > maxShortBytes:
		d.fail("type 0x%02x of %d bytes", w.token, w.bytes)
	}
}

// longType reads the types that preceded (max): parameters of older clients. Their greatest length is no limit: for
// tedious it is the number of characters of ntext.
func (d *decoder) longType(w *wireType) {
	d.u32()
	w.form, w.bytes = longLength, math.MaxInt32
	w.t.Size = sqltype.Max
	switch w.token {
	case typeImage:
		w.t.Kind = sqltype.VarBinary
		return
	case typeText:
		w.t.Kind = sqltype.VarChar
	default:
		w.t.Kind = sqltype.NVarChar
	}
	d.bytes(len(collation))
}

// fixedToken returns the type of a column that a server announces without a length, since it has one length and cannot be NULL:
// a NOT NULL column of an older type. Otherwise it returns 0. Some clients take the nullable form of the type to mean that the column
// can be NULL, whatever its flag.
func fixedToken(c sqltype.Column) byte {
	if c.Nullable {
		return 0
	}
	switch c.Type.Kind {
	case sqltype.Bit:
		return typeBit
	case sqltype.TinyInt:
		return typeInt1
	case sqltype.SmallInt:
		return typeInt2
	case sqltype.Int:
		return typeInt4
	case sqltype.BigInt:
		return typeInt8
	case sqltype.Float:
		return typeFloat8
	case sqltype.DateTime:
		return typeDateTime
	case sqltype.SmallDateTime:
		return typeDateTime4
	default:
		return 0
	}
}

// appendTypeInfo appends the TYPE_INFO of a column or a returned value.
func appendTypeInfo(b []byte, t sqltype.Type) []byte {
	switch t.Kind {
	case sqltype.Bit:
		return append(b, typeBitN, 1)
	case sqltype.TinyInt, sqltype.SmallInt, sqltype.Int, sqltype.BigInt:
		return append(b, typeIntN, byte(intWidth(t.Kind)))
	case sqltype.Float:
		return append(b, typeFloatN, 8)
	case sqltype.Decimal:
		return append(b, typeDecimalN, byte(decimalBytes(t.Precision)), t.Precision, t.Scale)
	case sqltype.Date:
		return append(b, typeDateN)
	case sqltype.Time:
		return append(b, typeTimeN, t.Scale)
	case sqltype.DateTime2:
		return append(b, typeDateTime2N, t.Scale)
	case sqltype.DateTimeOffset:
		return append(b, typeDateTimeOffset, t.Scale)
	case sqltype.DateTime:
		return append(b, typeDateTimeN, 8)
	case sqltype.SmallDateTime:
		return append(b, typeDateTimeN, 4)
	case sqltype.UniqueIdentifier:
		return append(b, typeGUID, 16)
	case sqltype.XML:
		return append(b, typeXML, 0)
	case sqltype.Binary:
		return appendShortType(b, typeBigBinary, t)
	case sqltype.VarBinary:
		return appendShortType(b, typeBigVarBinary, t)
	case sqltype.Char:
		return append(appendShortType(b, typeBigChar, t), collation[:]...)
	case sqltype.VarChar:
		return append(appendShortType(b, typeBigVarChar, t), collation[:]...)
	case sqltype.NChar:
		return append(appendShortType(b, typeNChar, t), collation[:]...)
	default: // NVarChar; checkColumn has refused the rest
		return append(appendShortType(b, typeNVarChar, t), collation[:]...)
	}
}

func appendShortType(b []byte, token byte, t sqltype.Type) []byte {
	size := sizeMax
	if !isPLP(t) {
		size = maxValueBytes(t)
	}
	return binary.LittleEndian.AppendUint16(append(b, token), uint16(size))
}

func intWidth(k sqltype.Kind) int {
	switch k {
	case sqltype.TinyInt:
		return 1
	case sqltype.SmallInt:
		return 2
	case sqltype.Int:
		return 4
	default:
		return 8
	}
}

// isPLP reports whether values of t are sent in chunks: xml, (max), and values that are too long for any other type.
func isPLP(t sqltype.Type) bool {
	switch t.Kind {
	case sqltype.XML:
		return true
	case sqltype.Char, sqltype.VarChar, sqltype.NChar, sqltype.NVarChar, sqltype.Binary, sqltype.VarBinary:
		return t.Size == sqltype.Max || maxValueBytes(t) > maxShortBytes
	default:
		return false
	}
}

// maxValueBytes returns the declared length of a char or binary type in bytes. A size of zero counts as one, the
// smallest size that a server declares.
func maxValueBytes(t sqltype.Type) int {
	n := max(t.Size, 1)
	if t.Kind == sqltype.NChar || t.Kind == sqltype.NVarChar {
		n *= 2
	}
	return n
}
