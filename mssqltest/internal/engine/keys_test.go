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

func TestAUniqueConstraintIsAnIndexAndAnError(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE TABLE dbo.u (id int IDENTITY NOT NULL PRIMARY KEY, code int NULL CONSTRAINT UQ_code UNIQUE, a int NOT NULL, b int NOT NULL, CONSTRAINT UQ_ab UNIQUE (a, b))")
	c.exec("INSERT dbo.u (code, a, b) VALUES (1, 1, 1), (NULL, 1, 2)")
	require.Contains(t, c.fails(2627, "INSERT dbo.u (code, a, b) VALUES (1, 2, 2)").Message, "Violation of UNIQUE KEY constraint 'UQ_code'")
	require.Contains(t, c.fails(2627, "INSERT dbo.u (code, a, b) VALUES (3, 1, 2)").Message, "'UQ_ab'")
	c.fails(2627, "INSERT dbo.u (code, a, b) VALUES (NULL, 3, 3)") // one NULL
	require.Equal(t, int64(2), c.scalar("SELECT id FROM dbo.u WITH (INDEX (UQ_ab), FORCESEEK) WHERE a = 1 AND b = 2"))
	c.fails(8110, "CREATE TABLE dbo.two (id int NOT NULL PRIMARY KEY, other int NOT NULL PRIMARY KEY)")
	c.fails(8110, "CREATE TABLE dbo.two (id int NOT NULL PRIMARY KEY, other int NOT NULL UNIQUE CLUSTERED)")
	c.exec("CREATE TABLE dbo.heap (id int NOT NULL UNIQUE, other int NOT NULL PRIMARY KEY)")
}
