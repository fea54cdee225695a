package sqlserver_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// The readers of this file read packed lists as the statements do: SUBSTRING at the offsets of the T-SQL.

const day = 24 * 60 * 60 * 1000 // milliseconds

func FuzzRowsArePacked(f *testing.F) { suite.FuzzRows(f, sqlserver.Dialect, rowsOf) }

func FuzzSettlesArePacked(f *testing.F) {
	suite.FuzzSettles(f, sqlserver.Dialect, endsOf, func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") })
}

// argumentsOf returns the values of the declared parameters.
func argumentsOf(s sqlbatch.Statement) map[string]any {
	values := map[string]any{}
	for i, declared := range strings.Split(s.Args[1].(string), ",") {
		value := s.Args[2+i]
		if named, ok := value.(sql.NamedArg); ok {
			value = named.Value
		}
		values[strings.TrimPrefix(strings.Fields(declared)[0], "@")] = value
	}
	return values
}

// argument returns the value of a declared parameter.
func argument[T any](t require.TestingT, s sqlbatch.Statement, name string) T {
	value, declared := argumentsOf(s)[name]
	require.True(t, declared, "no parameter @%s", name)
	v, ok := value.(T)
	require.True(t, ok, "@%s is a %T", name, value)
	return v
}

func records(t require.TestingT, list []byte, size int) [][]byte {
	require.Zero(t, len(list)%size)
	require.Less(t, len(list), 8000)
	var out [][]byte
	for ; len(list) > 0; list = list[size:] {
		out = append(out, list[:size])
	}
	return out
}

// integer returns CONVERT(int, SUBSTRING(b, from, n)).
func integer(b []byte, from, n int) int64 {
	v := int64(0)
	for _, c := range b[from-1 : from-1+n] {
		v = v<<8 | int64(c)
	}
	return v
}

// place returns CONVERT(nvarchar(2000), SUBSTRING(@e, offset + 1, length)).
func place(texts []byte, offset, length int64) string {
	var units []uint16
	for b := texts[offset : offset+length]; len(b) > 0; b = b[2:] {
		units = append(units, binary.LittleEndian.Uint16(b))
	}
	return string(utf16.Decode(units))
}

// rowsOf reads the lists of ids, @i and @j, and @m0, @k0, @h0, @b0, @m1 … of a size.
func rowsOf(t *testing.T, st sqlbatch.Statement) (rows []sqlbatch.Row) {
	values := argumentsOf(st)
	part := func(name string, i int) []byte {
		v, _ := values[name+strconv.Itoa(i)].([]byte)
		return v
	}
	ids := slices.Clone(values["i"].([]byte))
	if more, ok := values["j"]; ok {
		require.Len(t, ids, 256*16)
		ids = append(ids, more.([]byte)...)
	}
	for i, id := range records(t, ids, 16) {
		row := sqlbatch.Row{ID: [16]byte(id), Key: string(part("k", i)), Headers: part("h", i), Body: part("b", i)}
		if m, ok := values["m"+strconv.Itoa(i)]; ok {
			m := m.([]byte)
			require.GreaterOrEqual(t, len(m), 17)
			span := func(at int) time.Duration {
				days, ms := integer(m, at, 4), integer(m, at+4, 4)
				require.Less(t, ms, int64(day))
				return time.Duration(days*day+ms) * time.Millisecond
			}
			row.Priority, row.Delay, row.TTL, row.Type = int8(m[0])-1, span(2), span(10), string(m[17:])
		}
		rows = append(rows, row)
		require.NotNil(t, row.Body, "a body is never NULL")
	}
	for name, v := range values {
		if i, err := strconv.Atoi(name[1:]); err == nil && i >= len(rows) {
			require.Nil(t, v, "@%s is of no row", name)
		}
	}
	return rows
}

func endsOf(t *testing.T, what string, st sqlbatch.Statement) (ends []suite.End) {
	size := map[string]int{"items": 24, "nacks": 42, "dead-letters": 43}[what]
	list := records(t, argument[[]byte](t, st, "a"), size)
	require.True(t, slices.IsSortedFunc(list, func(a, b []byte) int { return bytes.Compare(a[:16], b[:16]) }), "ids ascend, so that locks are taken in one order")
	for _, r := range list {
		e := suite.End{Item: sqlbatch.Item{ID: [16]byte(r[:16]), Fence: integer(r, 17, 8)}}
		at := 0
		switch what {
		case "nacks":
			e.Delay, at = integer(r, 25, 4)*day+integer(r, 29, 4), 33
		case "dead-letters":
			at, e.Uncounted, e.Cause, e.Print = 25, r[30]&1 == 1, sqlbatch.Cause(r[30]>>1), integer(r, 32, 8)
		}
		if at > 0 {
			e.Took = integer(r, len(r)-3, 4)
			e.Text = place(argument[[]byte](t, st, "e"), integer(r, at, 4), integer(r, at+4, 2))
		}
		ends = append(ends, e)
	}
	return ends
}

func TestOrdersNewRowsByKeyAndOthersByID(t *testing.T) {
	q := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	rows := []sqlbatch.Row{{ID: [16]byte{2}, Key: "a"}, {ID: [16]byte{3}}, {ID: [16]byte{1}, Key: "b"}}
	ids := func(s sqlbatch.Statement) (ids []byte) {
		for _, row := range rowsOf(t, s) {
			ids = append(ids, row.ID[0])
		}
		return ids
	}
	require.Equal(t, []byte{1, 2, 3}, ids(q.Enqueue(rows)))
	require.Equal(t, []byte{3, 2, 1}, ids(q.EnqueueNew(rows)))
	require.Equal(t, byte(2), rows[0].ID[0], "the caller's slice is unchanged")
}

func TestSendsAnEmptyBodyForNoBody(t *testing.T) {
	s := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders"}).Enqueue([]sqlbatch.Row{{ID: [16]byte{1}, Key: "k"}, {ID: [16]byte{2}, Headers: []byte{1}}, {ID: [16]byte{3}}})
	for _, name := range []string{"b0", "b1", "b2"} {
		require.NotNil(t, argument[[]byte](t, s, name), name)
		require.Empty(t, argument[[]byte](t, s, name), name)
	}
	for _, name := range []string{"k1", "k2", "h0", "h2", "k3", "h3", "b3"} {
		require.Nil(t, argument[[]byte](t, s, name), name)
	}
}

func TestKeysArriveAsPacked(t *testing.T) {
	q := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.StringN(0, 50, sqlbatch.MaxKey), 0, sqlserver.Dialect.Traits().FindIDs).Draw(t, "keys")
		s := q.Find(nil, keys)
		all := argument[[]byte](t, s, "keys")
		var got []string
		for _, r := range records(t, argument[[]byte](t, s, "places"), 5) {
			from := integer(r, 1, 4)
			got = append(got, string(all[from:from+integer(r, 5, 1)]))
		}
		require.ElementsMatch(t, keys, got)
		require.Empty(t, argument[[]byte](t, s, "ids"))
	})
}

func TestHeadsArriveAsPackedAndWithinTheDatesThereAre(t *testing.T) {
	q := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	heads := suite.HeadsAt(0, -5, 1_800_000_000_123, math.MaxInt64)
	for _, s := range []sqlbatch.Statement{q.Claim(sqlbatch.ClaimParams{Rows: 1, Heads: heads}), q.NextDue(heads)} {
		var got []int64
		for _, r := range records(t, argument[[]byte](t, s, "heads"), 24) {
			got = append(got, integer(r, 1, 4)*day+integer(r, 5, 4))
		}
		last := time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC).UnixMilli()
		require.Equal(t, []int64{0, 0, 1_800_000_000_123, last}, got)
	}
}

func TestErrorTextsOfAnyBytesAreSeparated(t *testing.T) {
	long := strings.Repeat("é", sqlbatch.MaxError)
	items := []sqlbatch.DeadLetterItem{
		{Item: sqlbatch.Item{ID: [16]byte{1}}, Error: "cut \xc3"},
		{Item: sqlbatch.Item{ID: [16]byte{2}}, Error: "\xa9 off"},
		{Item: sqlbatch.Item{ID: [16]byte{3}}, Error: "😀"},
		{Item: sqlbatch.Item{ID: [16]byte{4}}, Error: ""},
		{Item: sqlbatch.Item{ID: [16]byte{5}}, Error: long},
		{Item: sqlbatch.Item{ID: [16]byte{6}}, Error: strings.Repeat("\x80", 2*sqlbatch.MaxError)},
	}
	s := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders"}).DeadLetter(items)
	var got []string
	for _, r := range records(t, argument[[]byte](t, s, "a"), 43) {
		got = append(got, place(argument[[]byte](t, s, "e"), integer(r, 25, 4), integer(r, 29, 2)))
	}
	require.Equal(t, []string{"cut \uFFFD", "\uFFFD off", "😀", "", long[:sqlbatch.MaxError], "\uFFFD"}, got)
}
