package sqlbatch

import (
	"database/sql"
	"encoding/binary"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The tests of this file read packed lists as the statements do: SUBSTRING at
// the offsets that stand in the T-SQL.

// argument is the value of a named parameter.
func argument[T any](t require.TestingT, s Statement, name string) T {
	for _, a := range s.Args[2:] {
		if n := a.(sql.NamedArg); n.Name == name {
			v, ok := n.Value.(T)
			require.True(t, ok, "@%s is a %T", name, n.Value)
			return v
		}
	}
	require.Fail(t, "no parameter", name)
	panic("unreachable")
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

// integer is CONVERT(int, SUBSTRING(b, from, n)).
func integer(b []byte, from, n int) int64 {
	v := int64(0)
	for _, c := range b[from-1 : from-1+n] {
		v = v<<8 | int64(c)
	}
	return v
}

func identity(b []byte) [16]byte { return [16]byte(b[:16]) }

// place is CONVERT(nvarchar(2000), SUBSTRING(@e, offset + 1, length)).
func place(texts []byte, offset, length int64) string {
	var units []uint16
	for b := texts[offset : offset+length]; len(b) > 0; b = b[2:] {
		units = append(units, binary.LittleEndian.Uint16(b))
	}
	return string(utf16.Decode(units))
}

func itemGen() *rapid.Generator[Item] {
	return rapid.Custom(func(t *rapid.T) Item {
		return Item{
			ID:    [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
			Fence: rapid.Int64Min(0).Draw(t, "fence"),
		}
	})
}

func requireAscending(t require.TestingT, list [][]byte) {
	for i := 1; i < len(list); i++ {
		require.LessOrEqual(t, compareIDs(identity(list[i-1]), identity(list[i])), 0, "ids ascend, so that locks are taken in one order")
	}
}

func TestSQLServerItemsArriveAsPacked(t *testing.T) {
	q := SQLServer.Queue(Names{Queue: "orders"})
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(itemGen(), 0, SQLServer.Traits().AckItems).Draw(t, "items")
		for _, s := range []Statement{q.Ack(items), q.Archive(items), q.Extend(items, time.Minute), q.EndAfter(items, time.Minute)} {
			list := records(t, argument[[]byte](t, s, "a"), 24)
			requireAscending(t, list)
			var got []Item
			for _, r := range list {
				got = append(got, Item{ID: identity(r), Fence: integer(r, 17, 8)})
			}
			require.ElementsMatch(t, items, got)
		}
	})
}

func TestSQLServerNacksArriveAsPacked(t *testing.T) {
	q := SQLServer.Queue(Names{Queue: "orders"})
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) NackItem {
			return NackItem{
				Item:  itemGen().Draw(t, "item"),
				Delay: time.Duration(rapid.Int64Range(0, int64(MaxDelay)).Draw(t, "delay")),
				Error: rapid.String().Draw(t, "error"),
			}
		}), 0, SQLServer.Traits().NackItems).Draw(t, "items")
		s := q.Nack(items)
		list, texts := records(t, argument[[]byte](t, s, "a"), 38), argument[[]byte](t, s, "e")
		requireAscending(t, list)
		var got []NackItem
		for _, r := range list {
			ms := integer(r, 25, 4)*dayMillis + integer(r, 29, 4)
			require.Less(t, integer(r, 29, 4), int64(dayMillis))
			got = append(got, NackItem{
				Item:  Item{ID: identity(r), Fence: integer(r, 17, 8)},
				Delay: time.Duration(ms) * time.Millisecond,
				Error: place(texts, integer(r, 33, 4), integer(r, 37, 2)),
			})
		}
		want := make([]NackItem, 0, len(items))
		for _, i := range items {
			i.Delay = time.Duration(milliseconds(i.Delay)) * time.Millisecond
			want = append(want, i)
		}
		require.ElementsMatch(t, want, got)
	})
}

func TestSQLServerReleasesArriveAsPacked(t *testing.T) {
	q := SQLServer.Queue(Names{Queue: "orders"})
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ReleaseItem {
			return ReleaseItem{Item: itemGen().Draw(t, "item"), Due: rapid.Int64Range(0, 1<<45).Draw(t, "due")}
		}), 0, SQLServer.Traits().ReleaseItems).Draw(t, "items")
		list := records(t, argument[[]byte](t, q.Release(items), "a"), 32)
		requireAscending(t, list)
		var got []ReleaseItem
		for _, r := range list {
			got = append(got, ReleaseItem{
				Item: Item{ID: identity(r), Fence: integer(r, 17, 8)},
				Due:  integer(r, 25, 4)*dayMillis + integer(r, 29, 4),
			})
		}
		require.ElementsMatch(t, items, got)
	})
}

func TestSQLServerRowsArriveAsPacked(t *testing.T) {
	q := SQLServer.Queue(Names{Queue: "orders"})
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Row {
			return Row{
				ID:       itemGen().Draw(t, "item").ID,
				Priority: int8(rapid.IntRange(PriorityLow, PriorityUrgent).Draw(t, "priority")),
				Delay:    time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "ms")) * time.Millisecond,
				TTL:      time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "ttl")) * time.Millisecond,
				Key:      rapid.StringN(0, 50, MaxKey).Draw(t, "key"),
				Headers:  rapid.SliceOfN(rapid.Byte(), 1, 10).Draw(t, "headers"),
				Body:     rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(t, "body"),
			}
		}), 1, 40).Draw(t, "rows")
		for _, s := range []Statement{q.Enqueue(rows), q.EnqueueNew(rows)} {
			var got []Row
			for i := 2; i < len(s.Args); i += 4 {
				value := func(j int) []byte { return s.Args[i+j].(sql.NamedArg).Value.([]byte) }
				m := value(0)
				if m == nil {
					require.Nil(t, value(3), "an unused slot")
					continue
				}
				require.Len(t, m, 33)
				require.NotNil(t, value(3), "a body is never NULL")
				got = append(got, Row{
					ID:       identity(m),
					Priority: int8(integer(m, 17, 1) - 1),
					Delay:    time.Duration(integer(m, 18, 4)*dayMillis+integer(m, 22, 4)) * time.Millisecond,
					TTL:      time.Duration(integer(m, 26, 4)*dayMillis+integer(m, 30, 4)) * time.Millisecond,
					Key:      string(value(1)),
					Headers:  value(2),
					Body:     value(3),
				})
			}
			require.ElementsMatch(t, rows, got)
		}
	})
}

func TestSQLServerOrdersNewRowsByKeyAndOthersByID(t *testing.T) {
	q := SQLServer.Queue(Names{Queue: "orders"})
	rows := []Row{{ID: [16]byte{2}, Key: "a"}, {ID: [16]byte{3}}, {ID: [16]byte{1}, Key: "b"}}
	ids := func(s Statement) (ids []byte) {
		for _, name := range []string{"m0", "m1", "m2"} {
			ids = append(ids, argument[[]byte](t, s, name)[0])
		}
		return ids
	}
	require.Equal(t, []byte{1, 2, 3}, ids(q.Enqueue(rows)))
	require.Equal(t, []byte{3, 2, 1}, ids(q.EnqueueNew(rows)))
	require.Equal(t, byte(2), rows[0].ID[0], "the caller's slice stays as it is")
}

func TestSQLServerSendsAnEmptyBodyForNoBody(t *testing.T) {
	s := SQLServer.Queue(Names{Queue: "orders"}).Enqueue([]Row{{ID: [16]byte{1}}, {ID: [16]byte{2}}, {ID: [16]byte{3}}})
	for _, name := range []string{"b0", "b1", "b2"} {
		require.NotNil(t, argument[[]byte](t, s, name), name)
		require.Empty(t, argument[[]byte](t, s, name), name)
	}
	for _, name := range []string{"k0", "h0", "m3", "b3"} {
		require.Nil(t, argument[[]byte](t, s, name), name)
	}
}

func TestSQLServerKeysArriveAsPacked(t *testing.T) {
	q := SQLServer.Queue(Names{Queue: "orders"})
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.StringN(0, 50, MaxKey), 0, SQLServer.Traits().FindIDs).Draw(t, "keys")
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

func TestSQLServerErrorTextsStayApartWhateverTheirBytes(t *testing.T) {
	long := strings.Repeat("é", MaxError)
	items := []BuryItem{
		{Item: Item{ID: [16]byte{1}}, Error: "cut \xc3"},
		{Item: Item{ID: [16]byte{2}}, Error: "\xa9 off"},
		{Item: Item{ID: [16]byte{3}}, Error: "😀"},
		{Item: Item{ID: [16]byte{4}}, Error: ""},
		{Item: Item{ID: [16]byte{5}}, Error: long},
		{Item: Item{ID: [16]byte{6}}, Error: strings.Repeat("\x80", 2*MaxError)},
	}
	s := SQLServer.Queue(Names{Queue: "orders"}).Bury(items)
	var got []string
	for _, r := range records(t, argument[[]byte](t, s, "a"), 31) {
		got = append(got, place(argument[[]byte](t, s, "e"), integer(r, 25, 4), integer(r, 29, 2)))
	}
	require.Equal(t, []string{"cut \uFFFD", "\uFFFD off", "😀", "", long[:MaxError], "\uFFFD"}, got)
}

func FuzzSQLServerErrorTexts(f *testing.F) {
	f.Add("no", "no \xff", "😀")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		s := SQLServer.Queue(Names{Queue: "orders"}).Nack([]NackItem{
			{Item: Item{ID: [16]byte{1}}, Error: a}, {Item: Item{ID: [16]byte{2}}, Error: b}, {Item: Item{ID: [16]byte{3}}, Error: c},
		})
		texts := argument[[]byte](t, s, "e")
		for i, r := range records(t, argument[[]byte](t, s, "a"), 38) {
			length := integer(r, 37, 2)
			require.LessOrEqual(t, length, int64(2*MaxError), "nvarchar(2000)")
			require.Equal(t, cut(strings.ToValidUTF8([]string{a, b, c}[i], "\uFFFD")), place(texts, integer(r, 33, 4), length))
		}
	})
}

func TestCutUnitsCountsUTF16AndSplitsNoCharacter(t *testing.T) {
	require.Equal(t, "abc", cutUnits("abc", 3))
	require.Equal(t, "ab", cutUnits("abc", 2))
	require.Equal(t, "a", cutUnits("a😀", 2), "the second half would not fit")
	require.Equal(t, "a😀", cutUnits("a😀b", 3))
	require.Equal(t, "éé", cutUnits("ééé", 2))
	require.Empty(t, cutUnits("a", 0))
}
