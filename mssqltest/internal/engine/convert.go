package engine

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// convertible reports whether a conversion from a to b exists and whether it may be implicit.
func convertible(a, b sqltype.Type) (implicit, explicit bool) {
	switch {
	case a.Kind == sqltype.Invalid, a.Kind == b.Kind:
		return true, true
	case a.Kind == sqltype.XML:
		return false, isText(b.Kind) || isBytes(b.Kind)
	case b.Kind == sqltype.XML:
		return isText(a.Kind) || isBytes(a.Kind), true
	case isBytes(b.Kind):
		switch {
		case isText(a.Kind), isTime(a.Kind) && a.Kind != sqltype.DateTime && a.Kind != sqltype.SmallDateTime:
			return false, true
		case a.Kind == sqltype.Float:
			return false, true
		}
		return true, true
	case isBytes(a.Kind):
		return !isTimeNew(b.Kind) && b.Kind != sqltype.Float, b.Kind != sqltype.Float
	case isText(a.Kind), isText(b.Kind):
		return true, true
	case isTime(a.Kind) && isTime(b.Kind):
		return !(a.Kind == sqltype.Date && b.Kind == sqltype.Time || a.Kind == sqltype.Time && b.Kind == sqltype.Date),
			!(a.Kind == sqltype.Date && b.Kind == sqltype.Time || a.Kind == sqltype.Time && b.Kind == sqltype.Date)
	case isTime(a.Kind) || isTime(b.Kind), a.Kind == sqltype.UniqueIdentifier || b.Kind == sqltype.UniqueIdentifier:
		return false, false
	}
	return true, true
}

func isTimeNew(k sqltype.Kind) bool {
	return isTime(k) && k != sqltype.DateTime && k != sqltype.SmallDateTime
}

// checkImplicit is the compile-time check of an assignment or comparison.
func checkImplicit(from, to sqltype.Type) error {
	implicit, explicit := convertible(from, to)
	switch {
	case implicit:
		return nil
	case explicit:
		return errImplicit(from, to)
	}
	return errClash(from, to)
}

// convert returns v as a value of type to. Strings and binaries that are too long are cut, as CAST does; store refuses
// them instead.
func convert(v sqltype.Value, from, to sqltype.Type, style int) (sqltype.Value, error) {
	if v == nil {
		return nil, nil
	}
	switch {
	case isInteger(to.Kind):
		return toInteger(v, from, to)
	case to.Kind == sqltype.Float:
		if n, ok := v.(int64); ok {
			return float64(n), nil
		}
		if from.Kind == sqltype.Float {
			return v, nil
		}
		return nil, errUnsupported(kindName(from.Kind) + " to float")
	case to.Kind == sqltype.Decimal:
		return toDecimal(v, to)
	case isText(to.Kind):
		s, err := textFor(v, from, to, style)
		if err != nil {
			return nil, err
		}
		s = inCodePage(s, to.Kind)
		if to.Kind == sqltype.XML || to.Size == sqltype.Max {
			return s, nil
		}
		if units(s, to.Kind) > to.Size && isNumber(from.Kind) {
			return nil, sqlError(8115, "Arithmetic overflow error converting %s to data type %s.", kindName(from.Kind), kindName(to.Kind))
		}
		s = cutText(s, to.Kind, to.Size)
		if to.Kind == sqltype.Char || to.Kind == sqltype.NChar {
			s += strings.Repeat(" ", max(0, to.Size-units(s, to.Kind)))
		}
		return s, nil
	case isBytes(to.Kind):
		b, err := toBytes(v, from, to)
		if err != nil {
			return nil, err
		}
		return fitBytes(b, to, isNumber(from.Kind)), nil
	case to.Kind == sqltype.UniqueIdentifier:
		return toGUID(v, from)
	case isTime(to.Kind):
		return toTime(v, from, to)
	}
	return nil, errNoConversion(from, to)
}

// store returns v as it is stored in a column. It is like convert, except that a value that does not fit is error 2628,
// whose text the caller writes.
func store(v sqltype.Value, from, to sqltype.Type) (_ sqltype.Value, fits bool, _ error) {
	if v == nil {
		return nil, true, nil
	}
	if from.Kind == to.Kind && from == to {
		return v, true, nil
	}
	switch {
	case isText(to.Kind) && to.Kind != sqltype.XML && to.Size != sqltype.Max:
		s, err := textFor(v, from, to, 0)
		if err != nil {
			return nil, true, err
		}
		if units(s, to.Kind) > to.Size && units(strings.TrimRight(s, " "), to.Kind) > to.Size {
			return s, false, nil
		}
		out, err := convert(s, sqltype.Type{Kind: to.Kind, Size: sqltype.Max}, to, 0)
		return out, true, err
	case isBytes(to.Kind) && to.Size != sqltype.Max:
		if b, ok := v.([]byte); ok && len(b) > to.Size {
			return v, false, nil
		}
	}
	out, err := convert(v, from, to, 0)
	return out, true, err
}

func toInteger(v sqltype.Value, from, to sqltype.Type) (sqltype.Value, error) {
	var n int64
	switch v := v.(type) {
	case bool:
		if v {
			n = 1
		}
	case int64:
		n = v
	case *big.Rat:
		q := new(big.Int).Quo(v.Num(), v.Denom())
		if !q.IsInt64() {
			return nil, errArithmetic(to)
		}
		n = q.Int64()
	case string:
		s := strings.TrimSpace(v)
		if to.Kind == sqltype.Bit {
			if low := strings.ToLower(s); low == "true" || low == "false" {
				return low == "true", nil
			}
		}
		if s != "" {
			var err error
			if n, err = strconv.ParseInt(s, 10, 64); err != nil {
				if ne, ok := err.(*strconv.NumError); ok && ne.Err == strconv.ErrRange {
					return nil, sqlError(248, "The conversion of the %s value '%s' overflowed an int column.", kindName(from.Kind), v)
				}
				if to.Kind == sqltype.BigInt {
					return nil, sqlError(8114, "Error converting data type %s to bigint.", kindName(from.Kind))
				}
				return nil, sqlError(245, "Conversion failed when converting the %s value '%s' to data type %s.", kindName(from.Kind), v, kindName(to.Kind))
			}
		}
	case []byte:
		// The last bytes count, the highest first.
		width := map[sqltype.Kind]int{sqltype.Bit: 1, sqltype.TinyInt: 1, sqltype.SmallInt: 2, sqltype.Int: 4, sqltype.BigInt: 8}[to.Kind]
		if len(v) > width {
			v = v[len(v)-width:]
		}
		var buf [8]byte
		copy(buf[8-len(v):], v)
		n = int64(binary.BigEndian.Uint64(buf[:]))
		switch to.Kind {
		case sqltype.SmallInt:
			n = int64(int16(n))
		case sqltype.Int:
			n = int64(int32(n))
		}
	default:
		return nil, errNoConversion(from, to)
	}
	if to.Kind == sqltype.Bit {
		return n != 0, nil
	}
	if !fitsInteger(n, to.Kind) {
		switch {
		case isText(from.Kind):
			return nil, sqlError(244, "The conversion of the %s value '%v' overflowed an %s column. Use a larger integer column.", kindName(from.Kind), v, kindName(to.Kind))
		case isInteger(from.Kind) && from.Kind != sqltype.BigInt:
			return nil, sqlError(220, "Arithmetic overflow error for data type %s, value = %d.", kindName(to.Kind), n)
		}
		return nil, errArithmetic(to)
	}
	return n, nil
}

func fitsInteger(n int64, k sqltype.Kind) bool {
	switch k {
	case sqltype.TinyInt:
		return n >= 0 && n <= 255
	case sqltype.SmallInt:
		return n >= math.MinInt16 && n <= math.MaxInt16
	case sqltype.Int:
		return n >= math.MinInt32 && n <= math.MaxInt32
	}
	return true
}

func toDecimal(v sqltype.Value, to sqltype.Type) (sqltype.Value, error) {
	r := new(big.Rat)
	switch v := v.(type) {
	case int64:
		r.SetInt64(v)
	case *big.Rat:
		r.Set(v)
	case string:
		if _, ok := r.SetString(strings.TrimSpace(v)); !ok {
			return nil, sqlError(8114, "Error converting data type varchar to numeric.")
		}
	default:
		return nil, sqlError(8114, "Error converting data type to numeric.")
	}
	return roundDecimal(r, to)
}

// roundDecimal rounds half away from zero to the scale and checks the precision.
func roundDecimal(r *big.Rat, to sqltype.Type) (sqltype.Value, error) {
	scale := pow10(int(to.Scale))
	n := new(big.Int).Mul(r.Num(), scale)
	n.Mul(n, big.NewInt(2))
	half := new(big.Int).Set(r.Denom())
	if n.Sign() < 0 {
		half.Neg(half)
	}
	n.Add(n, half)
	n.Quo(n, new(big.Int).Mul(r.Denom(), big.NewInt(2)))
	if new(big.Int).Abs(n).Cmp(pow10(int(to.Precision))) >= 0 {
		return nil, errArithmetic(to)
	}
	return new(big.Rat).SetFrac(n, scale), nil
}
