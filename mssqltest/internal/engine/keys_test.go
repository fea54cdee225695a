package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
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
		}
		return firstDay.Add(time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "time"))).Truncate(100)
	})
}

func TestEncodedKeysSortAsTheirValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := anyValue(rapid.IntRange(0, 3).Draw(t, "kind"))
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		want := compareValues(a, b)
		ka, kb := appendKey(nil, a), appendKey(nil, b)
		require.Equal(t, want, bytes.Compare(ka, kb))
		if want != 0 {
			require.False(t, bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka), "no key is a prefix of another")
		}
		require.Positive(t, bytes.Compare(ka, appendKey(nil, nil)), "NULL is the lowest")
	})
}
