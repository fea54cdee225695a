package engine

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

func toText(v sqltype.Value, from sqltype.Type, style int) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case sqltype.GUID:
		return formatGUID(v), nil
	case []byte:
		switch style {
		case 1:
			return "0x" + strings.ToUpper(hex.EncodeToString(v)), nil
		case 2:
			return strings.ToUpper(hex.EncodeToString(v)), nil
		}
		r := make([]rune, len(v)) // of a code page with one byte per character
		for i, c := range v {
			r[i] = rune(c)
		}
		return string(r), nil
	}
	return "", errNoConversion(from, typeText)
}

// textFor is toText, except that bytes become UTF-16 of an n-type: the lowest byte of each unit first.
func textFor(v sqltype.Value, from, to sqltype.Type, style int) (string, error) {
	b, ok := v.([]byte)
	if !ok || style != 0 || !isNational(to.Kind) {
		return toText(v, from, style)
	}
	units := make([]uint16, (len(b)+1)/2)
	for i, c := range b {
		units[i/2] |= uint16(c) << (8 * (i % 2))
	}
	return string(utf16.Decode(units)), nil
}

// inCodePage returns a text as a type without N stores it: a character that the code page lacks becomes a question mark ("char and
// varchar (Transact-SQL)"). The code page here has the first 256.
func inCodePage(s string, k sqltype.Kind) string {
	if isNational(k) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r > 255 {
			return '?'
		}
		return r
	}, s)
}

func toBytes(v sqltype.Value, from, to sqltype.Type) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case int64:
		b := binary.BigEndian.AppendUint64(nil, uint64(v))
		width := map[sqltype.Kind]int{sqltype.TinyInt: 1, sqltype.SmallInt: 2, sqltype.Int: 4}[from.Kind]
		if width > 0 {
			b = b[8-width:]
		}
		return b, nil
	case sqltype.GUID:
		return append([]byte(nil), v[:]...), nil
	case string:
		if isNational(from.Kind) {
			var b []byte
			for _, u := range utf16.Encode([]rune(v)) {
				b = binary.LittleEndian.AppendUint16(b, u)
			}
			return b, nil
		}
		b := make([]byte, 0, len(v))
		for _, r := range v {
			if r > 255 {
				r = '?'
			}
			b = append(b, byte(r))
		}
		return b, nil
	}
	return nil, errNoConversion(from, to)
}

// fitBytes cuts or pads to the size of the type. Numbers keep their last bytes, other values their first.
func fitBytes(b []byte, to sqltype.Type, number bool) []byte {
	if to.Size == sqltype.Max {
		return b
	}
	if len(b) > to.Size {
		if number {
			return b[len(b)-to.Size:]
		}
		return b[:to.Size]
	}
	if to.Kind == sqltype.Binary && len(b) < to.Size {
		out := make([]byte, to.Size)
		if number {
			copy(out[to.Size-len(b):], b)
		} else {
			copy(out, b)
		}
		return out
	}
	return b
}

func toGUID(v sqltype.Value, from sqltype.Type) (sqltype.Value, error) {
	switch v := v.(type) {
	case sqltype.GUID:
		return v, nil
	case string:
		s := strings.TrimSpace(v)
		s = strings.TrimPrefix(s, "{")
		if len(s) >= 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
			b, err := hex.DecodeString(strings.ReplaceAll(s[:36], "-", ""))
			if err == nil {
				var g sqltype.GUID
				copy(g[:], b)
				g[0], g[1], g[2], g[3] = b[3], b[2], b[1], b[0]
				g[4], g[5], g[6], g[7] = b[5], b[4], b[7], b[6]
				return g, nil
			}
		}
		return nil, sqlError(8169, "Conversion failed when converting from a character string to uniqueidentifier.")
	}
	return nil, errNoConversion(from, typeGUID)
}

func formatGUID(g sqltype.GUID) string {
	return fmt.Sprintf("%02X%02X%02X%02X-%02X%02X-%02X%02X-%X-%X",
		g[3], g[2], g[1], g[0], g[5], g[4], g[7], g[6], g[8:10], g[10:16])
}

// units returns the length that a type's size limits: bytes of a code page, or UTF-16 units.
func units(s string, k sqltype.Kind) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF && isNational(k) {
			n++
		}
	}
	return n
}

func cutText(s string, k sqltype.Kind, size int) string {
	if len(s) <= size {
		return s
	}
	n := 0
	for i, r := range s {
		w := 1
		if r > 0xFFFF && isNational(k) {
			w = 2
		}
		if n+w > size {
			return s[:i]
		}
		n += w
	}
	return s
}
