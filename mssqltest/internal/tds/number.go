package tds

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// maxPrecision is the most digits of a decimal.
const maxPrecision = 38

// decimalBytes returns the width of a decimal of that precision, including the sign.
func decimalBytes(precision uint8) int {
	switch {
	case precision <= 9:
		return 5
	case precision <= 19:
		return 9
	case precision <= 28:
		return 13
	default:
		return 17
	}
}

func pow10(n uint8) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

// appendDecimal appends sign and magnitude, rounded half away from zero to the type's scale.
func appendDecimal(b []byte, t sqltype.Type, v *big.Rat) ([]byte, error) {
	n := new(big.Int).Mul(v.Num(), pow10(t.Scale))
	n.Abs(n)
	half := new(big.Int).Rsh(v.Denom(), 1)
	n.Quo(n.Add(n, half), v.Denom())
	if n.Cmp(pow10(t.Precision)) >= 0 {
		return b, fmt.Errorf("%s does not fit decimal(%d, %d)", v.RatString(), t.Precision, t.Scale)
	}
	width := decimalBytes(t.Precision)
	sign := byte(1)
	if v.Sign() < 0 {
		sign = 0
	}
	b = append(b, byte(width), sign)
	at := len(b)
	b = grow(b, width-1)
	n.FillBytes(b[at:])
	slices.Reverse(b[at:])
	return b, nil
}

func decodeDecimal(b []byte, t sqltype.Type) (sqltype.Value, error) {
	// The length is either the declared one, or the shortest for the number.
	if len(b) < 2 || len(b) > decimalBytes(maxPrecision) {
		return nil, malformedf("decimal of %d bytes", len(b))
	}
	magnitude := slices.Clone(b[1:])
	slices.Reverse(magnitude)
	n := new(big.Int).SetBytes(magnitude)
	if n.Cmp(pow10(t.Precision)) >= 0 {
		return nil, malformedf("%s in a decimal(%d, %d)", n, t.Precision, t.Scale)
	}
	if b[0] == 0 {
		n.Neg(n)
	}
	return new(big.Rat).SetFrac(n, pow10(t.Scale)), nil
}

// decodeInt reads an integer of 1, 2, 4 or 8 bytes. One byte is tinyint, which is unsigned.
func decodeInt(b []byte) int64 {
	switch len(b) {
	case 1:
		return int64(b[0])
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	default:
		return int64(binary.LittleEndian.Uint64(b))
	}
}

// appendInt appends v in width bytes, if it fits the type of that width.
func appendInt(b []byte, width int, v int64) ([]byte, error) {
	low, high := int64(-1)<<(8*width-1), int64(1)<<(8*width-1)-1
	if width == 1 {
		low, high = 0, 255
	}
	if v < low || v > high {
		return b, fmt.Errorf("%d does not fit an integer of %d bytes", v, width)
	}
	for i := range width {
		b = append(b, byte(v>>(8*i)))
	}
	return b, nil
}
