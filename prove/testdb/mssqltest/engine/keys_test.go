package engine

import (
	"bytes"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq/prove/testdb/mssqltest/sqltype"
)

func anyValue(kind int) *rapid.Generator[sqltype.Value] {
	return rapid.Custom(func(t *rapid.T) sqltype.Value {
		switch kind {
		case 0:
			return rapid.Int64().Draw(t, "int")
		case 1:
			return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xFE, 0xFF}), 0, 5).Draw(t, "bytes")
		case 2:
			return rapid.StringOfN(rapid.RuneFrom([]rune("aAbB \x00é")), 0, 5, -1).Draw(t, "text")
		case 3:
			return firstDay.Add(time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "time"))).Truncate(100)
		case 4:
			return rapid.Float64().Draw(t, "float")
		case 5:
			return big.NewRat(rapid.Int64().Draw(t, "num"), 1000)
		}
		return rapid.Bool().Draw(t, "bit")
	})
}

func TestEncodedKeysSortAsTheirValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := anyValue(rapid.IntRange(0, 6).Draw(t, "kind"))
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		want := compareValues(a, b)
		for _, desc := range []bool{false, true} {
			ka, kb := appendKey(nil, a, desc), appendKey(nil, b, desc)
			got := bytes.Compare(ka, kb)
			if desc {
				got = -got
			}
			require.Equal(t, want, got)
			if want != 0 {
				require.False(t, bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka), "no key begins another")
			}
			null := appendKey(nil, nil, desc)
			require.Equal(t, desc, bytes.Compare(ka, null) < 0, "NULL is the lowest")
		}
	})
}
