package tds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

const (
	plpNull    = math.MaxUint64
	plpUnknown = math.MaxUint64 - 1
	shortNull  = 0xffff
	longNull   = 0xffffffff
)

// value reads one value of type w.
func (d *decoder) value(w wireType) sqltype.Value {
	if w.token == typeNull {
		return nil
	}
	b, null := d.rawValue(w)
	if null || d.err != nil {
		return nil
	}
	v, err := decodeValue(w, b)
	if err != nil {
		d.fail("%s", err)
		return nil
	}
	return v
}

// rawValue reads a value's bytes, aliasing the payload or, for chunks, not.
func (d *decoder) rawValue(w wireType) (b []byte, null bool) {
	n := w.bytes
	switch w.form {
	case byteLength:
		if n = int(d.u8()); n == 0 {
			return nil, true
		}
	case shortLength:
		if n = int(d.u16()); n == shortNull {
			return nil, true
		}
	case longLength:
		long := d.u32()
		if long == longNull {
			return nil, true
		}
		n = int(long)
	case plpLength:
		return d.chunks()
	}
	if n > w.bytes {
		d.fail("value of %d bytes in a type of %d", n, w.bytes)
	}
	return d.bytes(n), false
}

// chunks reads a partially length-prefixed value.
func (d *decoder) chunks() (b []byte, null bool) {
	total := d.u64()
	if total == plpNull {
		return nil, true
	}
	for {
		n := int(d.u32())
		if n == 0 {
			break
		}
		b = append(b, d.bytes(n)...)
	}
	if total != plpUnknown && total != uint64(len(b)) {
		d.fail("value of %d bytes announced as %d", len(b), total)
	}
	return b, false
}

func decodeValue(w wireType, b []byte) (sqltype.Value, error) {
	switch w.t.Kind {
	case sqltype.VarBinary, sqltype.Binary:
		return append(make([]byte, 0, len(b)), b...), nil
	case sqltype.VarChar, sqltype.Char:
		return decodeCP1252(b), nil
	case sqltype.NVarChar, sqltype.NChar, sqltype.XML:
		if len(b)%2 != 0 {
			return nil, malformedf("UTF-16 text of %d bytes", len(b))
		}
		return decodeUTF16(b), nil
	}
	// The remaining types have one length. A decimal can be shorter than declared.
	if len(b) != w.bytes && w.t.Kind != sqltype.Decimal {
		return nil, malformedf("value of %d bytes in a type of %d", len(b), w.bytes)
	}
	switch w.t.Kind {
	case sqltype.Bit:
		return b[0] != 0, nil
	case sqltype.TinyInt, sqltype.SmallInt, sqltype.Int, sqltype.BigInt:
		return decodeInt(b), nil
	case sqltype.Float:
		if len(b) == 4 {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), nil
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
	case sqltype.Decimal:
		return decodeDecimal(b, w.t)
	case sqltype.UniqueIdentifier:
		return sqltype.GUID(b), nil
	case sqltype.DateTime:
		return timeValue(decodeDateTime(b))
	case sqltype.SmallDateTime:
		return timeValue(decodeSmallDateTime(b))
	default:
		return timeValue(decodeClockValue(w.t, b))
	}
}

// timeValue keeps the result of a failed decoding from becoming a Value.
func timeValue(t time.Time, err error) (sqltype.Value, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// decodeClockValue reads date, time, datetime2 and datetimeoffset.
func decodeClockValue(t sqltype.Type, b []byte) (time.Time, error) {
	if t.Kind == sqltype.Date {
		day, err := decodeDay(b)
		return joinTime(day, 0), err
	}
	clock := clockBytes(t.Scale)
	ofDay, err := decodeClock(b[:clock], t.Scale)
	if err != nil || t.Kind == sqltype.Time {
		return joinTime(0, ofDay), err
	}
	day, err := decodeDay(b[clock:])
	if err != nil || t.Kind == sqltype.DateTime2 {
		return joinTime(day, ofDay), err
	}
	minutes := int(int16(binary.LittleEndian.Uint16(b[clock+3:])))
	if minutes < -14*60 || minutes > 14*60 {
		return time.Time{}, malformedf("offset of %d minutes", minutes)
	}
	return joinTime(day, ofDay).In(time.FixedZone("", minutes*60)), nil
}

var errKind = errors.New("not a value of that type")

// appendValue appends v as a value of the column or variable type t.
func appendValue(b []byte, t sqltype.Type, v sqltype.Value) ([]byte, error) {
	if v == nil {
		return appendNull(b, t), nil
	}
	out, err := appendNotNull(b, t, v)
	if err != nil {
		return b, fmt.Errorf("%T in a column of type %+v: %w", v, t, err)
	}
	return out, nil
}

func appendNull(b []byte, t sqltype.Type) []byte {
	switch {
	case isPLP(t):
		return binary.LittleEndian.AppendUint64(b, plpNull)
	case isText(t.Kind):
		return binary.LittleEndian.AppendUint16(b, shortNull)
	default:
		return append(b, 0)
	}
}

// nullBytes returns the size of a NULL of type t in a ROW.
func nullBytes(t sqltype.Type) int {
	switch {
	case isPLP(t):
		return 8
	case isText(t.Kind):
		return 2
	default:
		return 1
	}
}

// isText reports whether k is a char or binary type, whose length has two bytes.
func isText(k sqltype.Kind) bool {
	switch k {
	case sqltype.Char, sqltype.VarChar, sqltype.NChar, sqltype.NVarChar, sqltype.Binary, sqltype.VarBinary:
		return true
	default:
		return false
	}
}

func appendNotNull(b []byte, t sqltype.Type, v sqltype.Value) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		if t.Kind == sqltype.Binary || t.Kind == sqltype.VarBinary {
			return appendText(b, t, len(v), func(b []byte) []byte { return append(b, v...) })
		}
	case string:
		return appendString(b, t, v)
	case bool:
		if t.Kind == sqltype.Bit {
			return append(b, 1, bit(v)), nil
		}
	case int64:
		switch t.Kind {
		case sqltype.TinyInt, sqltype.SmallInt, sqltype.Int, sqltype.BigInt:
			width := intWidth(t.Kind)
			return appendInt(append(b, byte(width)), width, v)
		}
	case float64:
		if t.Kind == sqltype.Float {
			return binary.LittleEndian.AppendUint64(append(b, 8), math.Float64bits(v)), nil
		}
	case *big.Rat:
		if t.Kind == sqltype.Decimal {
			return appendDecimal(b, t, v)
		}
	case sqltype.GUID:
		if t.Kind == sqltype.UniqueIdentifier {
			return append(append(b, 16), v[:]...), nil
		}
	case time.Time:
		return appendTime(b, t, v)
	}
	return b, errKind
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func appendString(b []byte, t sqltype.Type, s string) ([]byte, error) {
	switch t.Kind {
	case sqltype.Char, sqltype.VarChar:
		text := appendCP1252(nil, s)
		return appendText(b, t, len(text), func(b []byte) []byte { return append(b, text...) })
	case sqltype.NChar, sqltype.NVarChar, sqltype.XML:
		return appendText(b, t, 2*utf16Units(s), func(b []byte) []byte { return appendUTF16(b, s) })
	default:
		return b, errKind
	}
}

// appendText appends a char, binary or xml value of n bytes, which content appends.
func appendText(b []byte, t sqltype.Type, n int, content func([]byte) []byte) ([]byte, error) {
	if isPLP(t) {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
		if n > 0 {
			b = content(binary.LittleEndian.AppendUint32(b, uint32(n)))
		}
		return binary.LittleEndian.AppendUint32(b, 0), nil
	}
	if limit := maxValueBytes(t); n > limit {
		return b, fmt.Errorf("%d bytes where %d fit", n, limit)
	}
	return content(binary.LittleEndian.AppendUint16(b, uint16(n))), nil
}

func appendTime(b []byte, t sqltype.Type, v time.Time) ([]byte, error) {
	day, ofDay := splitTime(v)
	switch t.Kind {
	case sqltype.Date:
		return appendDay(append(b, 3), day)
	case sqltype.Time:
		return appendClock(append(b, byte(clockBytes(t.Scale))), ofDay, t.Scale), nil
	case sqltype.DateTime2:
		b = append(b, byte(clockBytes(t.Scale)+3))
		return appendDay(appendClock(b, ofDay, t.Scale), day)
	case sqltype.DateTimeOffset:
		_, offset := v.Zone()
		b = append(b, byte(clockBytes(t.Scale)+5))
		b, err := appendDay(appendClock(b, ofDay, t.Scale), day)
		return binary.LittleEndian.AppendUint16(b, uint16(int16(offset/60))), err
	case sqltype.DateTime:
		return appendDateTime(append(b, 8), v)
	case sqltype.SmallDateTime:
		return appendSmallDateTime(append(b, 4), v)
	default:
		return b, errKind
	}
}

// checkType refuses a type that cannot be described on the wire.
func checkType(t sqltype.Type) error {
	switch {
	case t.Kind == sqltype.Invalid || t.Kind > sqltype.XML:
		return fmt.Errorf("type %+v is none", t)
	case t.Kind == sqltype.Decimal && (t.Precision < 1 || t.Precision > maxPrecision || t.Scale > t.Precision):
		return fmt.Errorf("decimal(%d, %d) is none", t.Precision, t.Scale)
	case slices.Contains(scaledKinds, t.Kind) && t.Scale > 7:
		return fmt.Errorf("scale %d of a time type", t.Scale)
	default:
		return nil
	}
}

var scaledKinds = []sqltype.Kind{sqltype.Time, sqltype.DateTime2, sqltype.DateTimeOffset}
