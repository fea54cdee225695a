package sqlite_test

import (
	"slices"
	"strconv"

	"github.com/chanq/chanq/sqlbatch/internal/suite"

	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func FuzzRowsArePacked(f *testing.F) { suite.FuzzRows(f, sqlite.Dialect, rowsOf) }

func FuzzSettlesArePacked(f *testing.F) {
	suite.FuzzSettles(f, sqlite.Dialect, endsOf, func(s string) string { return s })
}

const recordSize = 91

// digits reads a fixed-width decimal number of a record, from 1 as SUBSTR does.
func digits(t *testing.T, record []byte, from, width int) int64 {
	v, err := strconv.ParseInt(string(record[from-1:from-1+width]), 10, 64)
	require.NoError(t, err)
	return v
}

func rowsOf(t *testing.T, st sqlbatch.Statement) (rows []sqlbatch.Row) {
	list, data := st.Args[0].([]byte), st.Args[1].([]byte)
	require.Zero(t, len(list)%recordSize)
	for ; len(list) > 0; list = list[recordSize:] {
		d := func(from, width int) int64 { return digits(t, list, from, width) }
		r := sqlbatch.Row{ID: [16]byte(list[:16]), Priority: int8(d(17, 1)) - 1, Delay: time.Duration(d(18, 13)) * time.Millisecond, TTL: time.Duration(d(31, 13)) * time.Millisecond}
		r.Key = string(suite.Part(data, d(44, 9), d(53, 3)))
		r.Type = string(suite.Part(data, d(56, 9)-d(89, 3), d(89, 3)))
		if headers := suite.Part(data, d(56, 9), d(65, 6)); len(headers) > 0 {
			r.Headers = headers
		}
		r.Body = suite.Part(data, d(71, 9), d(80, 9))
		rows = append(rows, r)
	}
	return rows
}

func endsOf(t *testing.T, what string, st sqlbatch.Statement) (ends []suite.End) {
	size := map[string]int{"items": 35, "nacks": 71, "dead-letters": 71}[what]
	list := st.Args[0].([]byte)
	require.Zero(t, len(list)%size)
	for n := 0; len(list) > 0; n, list = n+1, list[size:] {
		e := suite.End{Item: sqlbatch.Item{ID: [16]byte(list[:16]), Fence: digits(t, list, 17, 19)}}
		switch what {
		case "nacks", "dead-letters":
			errs, _ := st.Args[1].([]byte)
			e.Delay, e.Took = digits(t, list, 36, 13), digits(t, list, 62, 10)
			if what == "dead-letters" {
				e.Delay, e.Uncounted, e.Cause = 0, e.Delay&1 == 1, sqlbatch.Cause(e.Delay>>1)
				e.Print = digits(t, st.Prior[0].Args[2].([]byte)[19*n:], 1, 19)
			}
			e.Text = string(suite.Part(errs, digits(t, list, 49, 9), digits(t, list, 58, 4)))
		}
		ends = append(ends, e)
	}
	return ends
}

// FuzzPacking stores two rows whose parts the statement cuts from one blob, and requires that they are read back
// unchanged.
func FuzzPacking(f *testing.F) {
	f.Add([]byte("id"), int8(0), int64(0), "", []byte(nil), []byte(nil))
	f.Add([]byte{0}, int8(-1), int64(1), "ключ", []byte(`{"a":"b"}`), []byte("body"))
	f.Add([]byte("0123456789abcdef"), int8(2), int64(time.Hour), "0", []byte("000"), []byte{0, 0xff, 0x80})
	fuzzed := newTable(f, sqlbatch.Names{Queue: "fuzz"})
	f.Fuzz(func(t *testing.T, id []byte, priority int8, delay int64, key string, headers, body []byte) {
		row := sqlbatch.Row{Priority: max(min(priority, 2), -1), Delay: min(max(time.Duration(delay), 0), sqlbatch.MaxDelay), Headers: headers, Body: body}
		copy(row.ID[:], id)
		if len(key) <= sqlbatch.MaxKey-1 && strings.ToValidUTF8(key, "") == key && !strings.Contains(key, "\x00") {
			row.Key = key
		}
		if len(key) <= sqlbatch.MaxType && !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			row.Type = key
		}
		second := row
		second.ID[0]++
		if second.Key != "" {
			second.Key += "2"
		}
		here := &table{t, fuzzed.conn, fuzzed.q}
		here.run(sqlbatch.Statement{Text: "DELETE FROM chanq_fuzz"})
		here.run(here.q.Enqueue([]sqlbatch.Row{row, second}))
		for _, want := range []sqlbatch.Row{row, second} {
			got := here.run(here.q.Get(want.ID))
			require.Len(t, got, 1)
			require.Equal(t, want.ID[:], got[0][1])
			require.EqualValues(t, want.Priority, got[0][2])
			require.Equal(t, (int64(want.Delay)+999_999)/1_000_000, got[0][6].(int64)-got[0][5].(int64))
			require.Equal(t, want.Key, textOrNone(got[0][12]))
			require.Equal(t, want.Type, textOrNone(got[0][13]))
			require.Equal(t, string(want.Headers), bytesOrNone(got[0][18]))
			require.Equal(t, string(want.Body), bytesOrNone(got[0][19]))
		}
	})
}

// TestEachAttributeIsStored sends a message with one attribute behind a message that has none.
func TestEachAttributeIsStored(t *testing.T) {
	here := newTable(t, sqlbatch.Names{Queue: "orders"})
	stored := func(id byte) []any {
		return here.run(sqlbatch.Statement{
			Text: "SELECT priority, due_at - enqueued_at, expires_at - enqueued_at, dedup_key, type, headers, body FROM chanq_orders WHERE id = ?1",
			Args: []any{append(make([]byte, 15), id)},
		})[0]
	}
	bare := []any{int64(0), int64(0), nil, nil, nil, nil, []byte("body")}
	for i, c := range []struct {
		row  sqlbatch.Row
		want any
	}{
		{sqlbatch.Row{Priority: 1}, int64(1)}, {sqlbatch.Row{Delay: time.Second}, int64(1000)}, {sqlbatch.Row{TTL: time.Second}, int64(1000)},
		{sqlbatch.Row{Key: "k"}, "k"}, {sqlbatch.Row{Type: "t"}, "t"}, {sqlbatch.Row{Headers: []byte("{}")}, []byte("{}")},
	} {
		first, second := sqlbatch.Row{Body: []byte("body")}, c.row
		second.Body = first.Body
		first.ID[15], second.ID[15] = byte(2*i), byte(2*i+1)
		here.run(here.q.Enqueue([]sqlbatch.Row{first, second}))
		require.Equal(t, bare, stored(first.ID[15]))
		want := slices.Clone(bare)
		want[i] = c.want
		require.Equal(t, want, stored(second.ID[15]))
	}
}

func textOrNone(v any) string {
	s, _ := v.(string)
	return s
}

func bytesOrNone(v any) string {
	b, _ := v.([]byte)
	return string(b)
}
