package sqlbatch

import (
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These targets pack what they are given for each dialect and read it back as
// the statements do, with readers that share nothing with the packers.

// source makes values of the bytes of a fuzz input.
type source struct{ data []byte }

func (s *source) next(n int) []byte {
	out := make([]byte, n)
	s.data = s.data[copy(out, s.data):]
	return out
}

func (s *source) byte() int               { return int(s.next(1)[0]) }
func (s *source) number() int64           { return int64(binary.BigEndian.Uint64(s.next(8)) >> 1) }
func (s *source) id() [16]byte            { return [16]byte(s.next(16)) }
func (s *source) span() (d time.Duration) { return time.Duration(s.number() % int64(MaxDelay+1)) }

func (s *source) item() Item {
	return Item{ID: s.id(), Fence: s.number()}
}

// text is any bytes, seldom longer than an error may be.
func (s *source) text() string {
	n := s.byte()
	if n == 255 {
		return strings.Repeat(string(s.next(3)), MaxError)
	}
	return string(s.next(min(n, len(s.data))))
}

func (s *source) row() Row {
	r := Row{ID: s.id(), Priority: int8(s.byte()%4 - 1), Delay: s.span(), TTL: s.span()}
	if n := s.byte() % (MaxKey + 1); n > 0 {
		r.Key = strings.ToValidUTF8(strings.ReplaceAll(string(s.next(min(n, len(s.data)))), "\x00", ""), "")
	}
	if n := s.byte(); n > 0 {
		r.Headers = s.next(n)
	}
	r.Body = s.next(s.byte() * (1 + s.byte()%3))
	return r
}

// rounded is a row as a database has it.
func rounded(r Row) Row {
	r.Delay = time.Duration(milliseconds(r.Delay)) * time.Millisecond
	r.TTL = time.Duration(milliseconds(r.TTL)) * time.Millisecond
	if len(r.Headers) == 0 {
		r.Headers = nil
	}
	return r
}

func seeds(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\xff", 500)))
	f.Add([]byte(strings.Repeat("ab'\"\\{},$\x00é😀", 60)))
	long := make([]byte, 3000)
	for i := range long {
		long[i] = byte(i * 7)
	}
	f.Add(long)
}

func FuzzRowsArePacked(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := source{data}
		var rows, want []Row
		for n := 1 + s.byte()%8; n > 0; n-- {
			rows = append(rows, s.row())
			want = append(want, rounded(rows[len(rows)-1]))
		}
		names := Names{Queue: "orders"}
		for _, d := range []struct {
			dialect Dialect
			read    func(*testing.T, Statement) []Row
		}{{SQLServer, sqlServerRows}, {Postgres, postgresRowsOf}, {SQLite, sqliteRowsOf}} {
			q := d.dialect.Queue(names)
			for _, st := range []Statement{q.Enqueue(rows), q.EnqueueNew(rows)} {
				require.ElementsMatch(t, want, d.read(t, st), d.dialect.Name())
			}
		}
	})
}

// sqlServerRows reads @m0, @k0, @h0, @b0, @m1 … of a rung.
func sqlServerRows(t *testing.T, st Statement) (rows []Row) {
	values := map[string][]byte{}
	for _, a := range st.Args[2:] {
		named := a.(sql.NamedArg)
		_, twice := values[named.Name]
		require.False(t, twice, named.Name)
		values[named.Name] = named.Value.([]byte)
	}
	for i := 0; ; i++ {
		n := strconv.Itoa(i)
		m := values["m"+n]
		if m == nil {
			require.Less(t, i, len(values))
			break
		}
		require.Len(t, m, 33)
		span := func(at int) time.Duration {
			days, ms := integer(m, at, 4), integer(m, at+4, 4)
			require.Less(t, ms, int64(dayMillis))
			return time.Duration(days*dayMillis+ms) * time.Millisecond
		}
		rows = append(rows, Row{
			ID: identity(m), Priority: int8(m[16]) - 1, Delay: span(18), TTL: span(26),
			Key: string(values["k"+n]), Headers: values["h"+n], Body: values["b"+n],
		})
		require.NotNil(t, values["b"+n], "a body is never NULL")
	}
	for name, v := range values {
		i, err := strconv.Atoi(name[1:])
		require.NoError(t, err)
		require.True(t, v == nil || i < len(rows), "@%s is of no row", name)
	}
	return rows
}

// pgArray reads an array literal of numbers or hexadecimal digits, {} being so
// many of standard.
func pgArray(t *testing.T, literal any, n int, standard string) []string {
	text := literal.(string)
	require.Regexp(t, `^\{([0-9a-f-]+(,[0-9a-f-]+)*)?\}$`, text)
	if text == "{}" {
		return strings.Split(strings.Repeat(","+standard, n), ",")[1:]
	}
	list := strings.Split(text[1:len(text)-1], ",")
	require.Len(t, list, n)
	return list
}

func pgNumbers(t *testing.T, literal any, n int) []int64 {
	var out []int64
	for _, text := range pgArray(t, literal, n, "0") {
		v, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		out = append(out, v)
	}
	return out
}

func pgIDs(t *testing.T, literal any) (ids [][16]byte) {
	for _, text := range strings.Split(strings.Trim(literal.(string), "{}"), ",") {
		b, err := hex.DecodeString(text)
		require.NoError(t, err)
		ids = append(ids, [16]byte(b))
	}
	return ids
}

// part is substring(b FROM at FOR length).
func part(b []byte, at, length int64) []byte {
	if length == 0 {
		return []byte{}
	}
	return b[at-1 : at-1+length]
}

func postgresRowsOf(t *testing.T, st Statement) (rows []Row) {
	a := st.Args
	ids := pgIDs(t, a[0])
	n := len(ids)
	priorities, delays, ttls, keys := pgNumbers(t, a[1], n), pgNumbers(t, a[2], n), pgNumbers(t, a[3], n), pgNumbers(t, a[4], n)
	namesAt, names := pgNumbers(t, a[5], n), pgNumbers(t, a[6], n)
	bodyAt, body := pgNumbers(t, a[7], n), pgNumbers(t, a[8], n)
	for i, id := range ids {
		both := part(a[9].([]byte), namesAt[i], names[i])
		r := Row{
			ID: id, Priority: int8(priorities[i]), Key: string(both[:keys[i]]),
			Delay: time.Duration(delays[i]) * time.Millisecond, TTL: time.Duration(ttls[i]) * time.Millisecond,
		}
		if headers := both[keys[i]:]; len(headers) > 0 {
			r.Headers = headers
		}
		r.Body = part(a[10].([]byte), bodyAt[i], body[i])
		rows = append(rows, r)
	}
	return rows
}

// digits reads a fixed-width decimal number of a record, from 1 as SUBSTR does.
func digits(t *testing.T, record []byte, from, width int) int64 {
	v, err := strconv.ParseInt(string(record[from-1:from-1+width]), 10, 64)
	require.NoError(t, err)
	return v
}

func sqliteRowsOf(t *testing.T, st Statement) (rows []Row) {
	list, data := st.Args[0].([]byte), st.Args[1].([]byte)
	require.Zero(t, len(list)%sqliteRowSize)
	for ; len(list) > 0; list = list[sqliteRowSize:] {
		d := func(from, width int) int64 { return digits(t, list, from, width) }
		r := Row{ID: identity(list), Priority: int8(d(17, 1)) - 1, Delay: time.Duration(d(18, 13)) * time.Millisecond, TTL: time.Duration(d(31, 13)) * time.Millisecond}
		r.Key = string(part(data, d(44, 9), d(53, 3)))
		if headers := part(data, d(56, 9), d(65, 6)); len(headers) > 0 {
			r.Headers = headers
		}
		r.Body = part(data, d(71, 9), d(80, 9))
		rows = append(rows, r)
	}
	return rows
}

// end is any settle.
type end struct {
	Item
	delay, due int64
	text       string
	uncounted  bool
}

func FuzzSettlesArePacked(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := source{data}
		var items []Item
		var nacks []NackItem
		var releases []ReleaseItem
		var buries []BuryItem
		for n := 1 + s.byte()%12; n > 0; n-- {
			item, delay, due, text := s.item(), s.span(), s.number()%9_999_999_999_999, s.text()
			items = append(items, item)
			nacks = append(nacks, NackItem{item, delay, text})
			releases = append(releases, ReleaseItem{item, due})
			buries = append(buries, BuryItem{item, text, due%2 == 0})
		}
		for _, d := range []struct {
			dialect Dialect
			read    func(*testing.T, string, Statement) []end
			text    func(string) string // as the database keeps it
		}{
			{SQLServer, sqlServerEnds, func(s string) string { return cut(strings.ToValidUTF8(s, "\uFFFD")) }},
			{Postgres, postgresEndsOf, func(s string) string { return cut(postgresText(s)) }},
			{SQLite, sqliteEnds, cut},
		} {
			q := d.dialect.Queue(Names{Queue: "orders"})
			var plain, nacked, released, buried []end
			for i, item := range items {
				text := d.text(nacks[i].Error)
				require.LessOrEqual(t, len(text), MaxError)
				plain = append(plain, end{Item: item})
				nacked = append(nacked, end{Item: item, delay: milliseconds(nacks[i].Delay), text: text})
				released = append(released, end{Item: item, due: releases[i].Due})
				buried = append(buried, end{Item: item, text: text, uncounted: buries[i].Uncounted})
			}
			for _, st := range []Statement{q.Ack(items), q.Archive(items), q.Extend(items, time.Minute)} {
				require.ElementsMatch(t, plain, d.read(t, "items", st), d.dialect.Name())
			}
			require.ElementsMatch(t, nacked, d.read(t, "nacks", q.Nack(nacks)), d.dialect.Name())
			require.ElementsMatch(t, released, d.read(t, "releases", q.Release(releases)), d.dialect.Name())
			require.ElementsMatch(t, buried, d.read(t, "buries", q.Bury(buries)), d.dialect.Name())
		}
	})
}

func sqlServerEnds(t *testing.T, what string, st Statement) (ends []end) {
	size := map[string]int{"items": 24, "nacks": 38, "releases": 32, "buries": 31}[what]
	for _, r := range records(t, argument[[]byte](t, st, "a"), size) {
		e := end{Item: Item{identity(r), integer(r, 17, 8)}}
		at := 0
		switch what {
		case "nacks":
			e.delay, at = integer(r, 25, 4)*dayMillis+integer(r, 29, 4), 33
		case "releases":
			e.due = integer(r, 25, 4)*dayMillis + integer(r, 29, 4)
		case "buries":
			at, e.uncounted = 25, r[30] == 1
		}
		if at > 0 {
			e.text = place(argument[[]byte](t, st, "e"), integer(r, at, 4), integer(r, at+4, 2))
		}
		ends = append(ends, e)
	}
	return ends
}

// postgresEndsOf reads ids, the first fence, how far each is above it, and what
// the kind of settle adds.
func postgresEndsOf(t *testing.T, what string, st Statement) (ends []end) {
	ids := pgIDs(t, st.Args[0])
	n := len(ids)
	first, above := st.Args[1].(int64), pgNumbers(t, st.Args[2], n)
	for i, id := range ids {
		e := end{Item: Item{id, first + above[i]}}
		text := false
		switch what {
		case "nacks":
			e.delay, text = pgNumbers(t, st.Args[3], n)[i], true
		case "releases":
			e.due = pgNumbers(t, st.Args[3], n)[i]
		case "buries":
			e.uncounted, text = pgNumbers(t, st.Args[3], n)[i] == 1, true
		}
		if text {
			e.text = string(part(st.Args[6].([]byte), pgNumbers(t, st.Args[4], n)[i], pgNumbers(t, st.Args[5], n)[i]))
		}
		ends = append(ends, e)
	}
	return ends
}

func sqliteEnds(t *testing.T, what string, st Statement) (ends []end) {
	size := map[string]int{"items": 35, "nacks": 61, "releases": 48, "buries": 61}[what]
	list := st.Args[0].([]byte)
	require.Zero(t, len(list)%size)
	for ; len(list) > 0; list = list[size:] {
		e := end{Item: Item{identity(list), digits(t, list, 17, 19)}}
		switch what {
		case "releases":
			e.due = digits(t, list, 36, 13)
		case "nacks", "buries":
			errs, _ := st.Args[1].([]byte)
			e.delay = digits(t, list, 36, 13)
			if what == "buries" {
				e.delay, e.uncounted = 0, e.delay == 1
			}
			e.text = string(part(errs, digits(t, list, 49, 9), digits(t, list, 58, 4)))
		}
		ends = append(ends, e)
	}
	return ends
}
