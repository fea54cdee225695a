package guarantees

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Rows that were not inserted by chanq: docs/guides/sql.md documents the outcome of each. None is lost,
// and none stops consumers.
var foreign = []test{
	{"RowsOfAnotherProgramAreTreatedAsDocumented", foreignRows},
	{"RowsOfAnotherProgramInAnOrderedQueueAreTreatedAsDocumented", foreignOrderedRows},
}

// foreignRow is a row that another program inserts: its columns and their values as SQL.
type foreignRow struct {
	name string
	set  map[string]string
	end  foreignEnd
	only string // the only dialect that accepts the row; "" for all
}

// foreignEnd is the outcome of a foreignRow.
type foreignEnd struct {
	refused, waits bool
	dead           string // part of the error of the dead message
	text           string // the body if the message is delivered
	headers        map[string]string
	attempt        int
}

var (
	isRefused = foreignEnd{refused: true}
	waitsOn   = foreignEnd{waits: true}
)

func diesOf(reason string) foreignEnd  { return foreignEnd{dead: reason} }
func arrivesAs(text string) foreignEnd { return foreignEnd{text: text} }

// SQL literals

func (w *world) sqlBytes(b string) string {
	digits := hex.EncodeToString([]byte(b))
	switch w.Engine.Dialect.Name() {
	case "sqlserver":
		return "0x" + digits
	case "postgres":
		return `'\x` + digits + `'::bytea`
	}
	return "x'" + digits + "'"
}

func (w *world) sqlKey(text string) string {
	if w.Engine.Dialect.Name() == "sqlserver" {
		return w.sqlBytes(text)
	}
	return "'" + text + "'"
}

func (w *world) sqlID(id chanq.ID) string {
	if w.Engine.Dialect.Name() == "postgres" {
		return "'" + hex.EncodeToString(id[:]) + "'"
	}
	return w.sqlBytes(string(id[:]))
}

// sqlTime is the SQL for a time that many days from now.
func (w *world) sqlTime(days int) string {
	switch w.Engine.Dialect.Name() {
	case "sqlserver":
		return fmt.Sprintf("DATEADD(day, %d, SYSUTCDATETIME())", days)
	case "postgres":
		return fmt.Sprintf("(extract(epoch FROM now()) * 1000)::bigint + %d * 86400000::bigint", days)
	}
	return fmt.Sprintf("CAST(round((julianday('now') - 2440587.5 + %d) * 86400000.0) AS INTEGER)", days)
}

// sqlMillis is the SQL for a time: in Unix milliseconds if the column has them, otherwise as text.
func (w *world) sqlMillis(ms, words string) string {
	if w.Engine.Dialect.Name() == "sqlserver" {
		return "'" + words + "'"
	}
	return ms
}

func inUTF16(text string, mark bool) string {
	var b []byte
	if mark {
		b = append(b, 0xFF, 0xFE)
	}
	for _, unit := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return string(b)
}

// foreignBodies are rows for every kind of queue, with invalid or unusual bodies, headers and dedup
// keys.
func (w *world) foreignBodies() []foreignRow {
	body := func(b string) map[string]string { return map[string]string{"body": w.sqlBytes(b)} }
	headers := func(b string) map[string]string { return map[string]string{"headers": w.sqlBytes(b)} }
	key := func(k string) map[string]string { return map[string]string{"dedup_key": w.sqlKey(k)} }
	large := strings.Repeat("x", 100<<10)
	withHeaders := func(h map[string]string) foreignEnd { return foreignEnd{headers: h} }
	return []foreignRow{
		{name: "a body alone"},
		{name: "a body of UTF-16", set: body(inUTF16(`{"Text":"日本"}`, false)), end: arrivesAs("日本")},
		{name: "a body of UTF-16 with a mark", set: body(inUTF16(`{"Text":"é"}`, true)), end: arrivesAs("é")},
		{name: "a body of UTF-8 with a mark", set: body("\xEF\xBB\xBF" + `{"Text":"ü"}`), end: arrivesAs("ü")},
		{name: "a body above MaxBody", set: body(`{"Text":"` + large + `"}`), end: arrivesAs(large)},
		{name: "a body that is no JSON", set: body("{"), end: diesOf("cannot decode")},
		{name: "a body of nothing", set: body(""), end: diesOf("cannot decode")},
		{name: "a body of Latin-1", set: body("{\"Text\":\"caf\xE9\"}"), end: diesOf("neither UTF-8 nor UTF-16")},
		{name: "half a surrogate pair", set: body("{\x00\"\x00\x3D\xD8\"\x00:\x001\x00}\x00"), end: diesOf("surrogate")},
		{name: "headers of Latin-1", set: headers("{\"a\":\"caf\xE9\"}"), end: diesOf("neither UTF-8 nor UTF-16")},
		{name: "half a character of UTF-16", set: body("{\x00}"), end: diesOf("odd number of bytes")},
		{name: "a body of any bytes", set: body("\x00\xFF\x00\x00\x01"), end: diesOf("cannot decode")},
		{name: "headers of UTF-16", set: headers(inUTF16(`{"a":"b"}`, false)), end: withHeaders(map[string]string{"a": "b"})},
		{name: "headers above chanq's own limit", set: headers(`{"a":"` + large[:20<<10] + `"}`), end: withHeaders(map[string]string{"a": large[:20<<10]})},
		{name: "headers that are no JSON", set: headers("a: b"), end: diesOf("headers")},
		{name: "headers of numbers", set: headers(`{"a": 1}`), end: diesOf("headers")},
		{name: "headers above 64 KiB", set: headers(`{"a":"` + large + `"}`), end: isRefused},
		{name: "an id of zeros", set: map[string]string{"id": w.sqlID(chanq.ID{})}},
		{name: "the same id again", set: map[string]string{"id": w.sqlID(chanq.ID{})}, end: isRefused},
		{name: "a dedup key", set: key("a")},
		{name: "the same dedup key again", set: key("a"), end: isRefused},
		{name: "the longest dedup key", set: key(large[:sqlbatch.MaxKey])},
		{name: "a dedup key of nothing", set: key(""), end: isRefused},
		{name: "a dedup key that is too long", set: key(large[:sqlbatch.MaxKey+1]), end: isRefused},
		{name: "no body", set: map[string]string{"body": "NULL"}, end: isRefused},
		{name: "a body of text", set: map[string]string{"body": `'{"Text":"text"}'`}, end: arrivesAs("text"), only: "sqlite"},
		{name: "a body that is a number", set: map[string]string{"body": "5"}, end: diesOf("cannot decode"), only: "sqlite"},
		{name: "a body above 32 MiB", set: map[string]string{"body": "zeroblob(33554433)"}, end: isRefused, only: "sqlite"},
		{name: "headers of text behind a zero", set: map[string]string{"headers": `char(0) || hex(zeroblob(40000))`}, end: isRefused, only: "sqlite"},
		{name: "headers of text that are 64 KiB as characters", set: map[string]string{"headers": `'{"a":"' || replace(hex(zeroblob(20000)), '0', 'é') || '"}'`}, end: isRefused, only: "sqlite"},
		{name: "headers that are a number", set: map[string]string{"headers": "5"}, end: diesOf("headers"), only: "sqlite"},
		{name: "a dedup key that is a number", set: map[string]string{"dedup_key": "5"}, only: "sqlite"},
		{name: "a dedup key that is a blob", set: map[string]string{"dedup_key": w.sqlBytes("\xFF\x00")}, end: isRefused, only: "sqlite"},
		{name: "another dedup key of any bytes", set: map[string]string{"dedup_key": w.sqlBytes("\xFF\x00")}, only: "sqlserver"},
	}
}

// foreignNumbers are values of columns that other programs should not write.
func (w *world) foreignNumbers() []foreignRow {
	killed := diesOf("leases expired without a settle")
	one := func(column, value string) map[string]string { return map[string]string{column: value} }
	held := func(until string) map[string]string {
		return map[string]string{"leased_by": w.sqlID(chanq.ID{1}), "lease_until": until, "fence": "7", "attempts": "1"}
	}
	// Rows at the limits of the tables: claims and settles of them must not fail.
	with := func(set map[string]string, column, value string) map[string]string {
		set[column] = value
		return set
	}
	last, most, tooLarge := fmt.Sprint(uint64(sqlbatch.LastFence)), fmt.Sprint(sqlbatch.LastAttempt), fmt.Sprint(uint64(sqlbatch.LastFence)+1)
	rows := []foreignRow{
		{name: "no attempts, and one less", set: one("attempts", "-1"), end: isRefused},
		{name: "attempts", set: one("attempts", "5"), end: foreignEnd{attempt: 6}},
		{name: "almost the most attempts", set: one("attempts", "1999999999"), end: foreignEnd{attempt: sqlbatch.LastAttempt}},
		{name: "the most attempts", set: one("attempts", most), end: foreignEnd{attempt: sqlbatch.LastAttempt}},
		{name: "attempts that cannot be counted", set: one("attempts", "2147483647"), end: isRefused},
		{name: "lapses below zero", set: one("lapses", "-1"), end: isRefused},
		{name: "a lapse that was no attempt", set: one("lapses", "1"), end: isRefused},
		{name: "one lapse more than attempts", set: map[string]string{"attempts": "4", "lapses": "5"}, end: isRefused},
		{name: "a lease that is no attempt", set: with(held(w.sqlTime(-1)), "attempts", "0"), end: isRefused},
		{name: "a lease beside as many lapses", set: with(held(w.sqlTime(-1)), "lapses", "1"), end: isRefused},
		{name: "the most lapses", set: with(one("lapses", fmt.Sprint(sqlbatch.LastLapse)), "attempts", most), end: killed},
		{name: "the most lapses and an old lease", set: with(with(held(w.sqlTime(-1)), "lapses", fmt.Sprint(sqlbatch.LastLapse)), "attempts", most), end: killed},
		{name: "a fence below zero", set: one("fence", "-1"), end: isRefused},
		{name: "the last fence", set: one("fence", last)},
		{name: "an old lease by the last fence", set: with(held(w.sqlTime(-1)), "fence", last), end: foreignEnd{attempt: 2}},
		{name: "a fence with no room for many claims", set: one("fence", fmt.Sprint(uint64(sqlbatch.LastFence)-10))},
		{name: "a fence that is too large", set: one("fence", tooLarge), end: isRefused},
		{name: "a lease that is over", set: held(w.sqlTime(-1)), end: foreignEnd{attempt: 2}},
		{name: "a lease that runs", set: held(w.sqlTime(1)), end: waitsOn},
		{name: "an error before the first attempt", set: one("last_error", "'strange'")},
		{name: "an expiry in the past", set: one("expires_at", w.sqlTime(-1)), end: diesOf("expired")},
		{name: "an expiry in a hundred years", set: one("expires_at", w.sqlTime(36500))},
		{name: "a send in the future", set: one("enqueued_at", w.sqlTime(36500))},
	}
	for _, column := range []string{"due_at", "lease_until", "enqueued_at", "expires_at"} {
		rows = append(rows, foreignRow{name: column + " before 1970", set: one(column, w.sqlMillis("-1", "1969-12-31")), end: isRefused})
	}
	for column := range map[string]bool{"id": true, "due_at": true, "lease_until": true, "fence": true, "attempts": true, "lapses": true, "expires_at": true} {
		rows = append(rows, foreignRow{name: column + " is a word", set: one(column, "'soon'"), end: isRefused})
	}
	return rows
}

func foreignRows(w *world) {
	q := testdb.QueueOf[note](w, "work", chanq.Config{Spec: chanq.Spec{MaxBody: 1 << 10}})
	one := func(column, value string) map[string]string { return map[string]string{column: value} }
	rows := slices.Concat(w.foreignBodies(), w.foreignNumbers(), []foreignRow{
		{name: "the highest priority", set: one("priority", "2")},
		{name: "the lowest priority", set: one("priority", "-1")},
		{name: "a priority that is too high", set: one("priority", "3"), end: isRefused},
		{name: "a priority that is too low", set: one("priority", "-2"), end: isRefused},
		{name: "a lease of nobody", set: one("lease_until", w.sqlTime(1))},
		{name: "due in 1970", set: one("due_at", w.sqlMillis("0", "1970-01-01"))},
		{name: "due in a hundred years", set: one("due_at", w.sqlTime(36500)), end: waitsOn},
		{name: "due at the end of times", set: one("due_at", w.sqlMillis("253402300799999", "9999-12-31 23:59:59.999")), end: waitsOn},
	})
	end := foreignStory{world: w, q: q, ids: map[chanq.ID]foreignRow{}}
	end.insert(rows)
	end.judge()
}

func foreignOrderedRows(w *world) {
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4, MaxBody: 1 << 10}}
	w.Queue("work", cfg)
	q := testdb.OpenOn[note](w, w.DB, "work", cfg)
	in := func(slot, seq, key string) map[string]string {
		set := map[string]string{"slot": slot, "seq": seq, "order_key": key}
		maps.DeleteFunc(set, func(_, value string) bool { return value == "" })
		return set
	}
	rows := slices.Concat(w.foreignBodies(), w.foreignNumbers(), []foreignRow{
		{name: "a lease of nobody", set: map[string]string{"lease_until": w.sqlTime(1)}, end: waitsOn},
		{name: "a key and its slot", set: in(fmt.Sprint(sqlbatch.SlotOf("a", [16]byte{}, 4)), "", w.sqlKey("a"))},
		{name: "the longest key", set: in("1", "", w.sqlKey(strings.Repeat("k", sqlbatch.MaxOrderKey)))},
		{name: "a key of nothing", set: in("1", "", w.sqlKey("")), end: isRefused},
		{name: "a key that is too long", set: in("1", "", w.sqlKey(strings.Repeat("k", sqlbatch.MaxOrderKey+1))), end: isRefused},
		{name: "the first slot", set: in("0", "", "")},
		{name: "a slot below the first", set: in("-1", "", ""), end: isRefused},
		{name: "the last slot", set: in("3", "", "")},
		{name: "a slot behind the last", set: in("4", "", ""), end: isRefused},
		{name: "no place", set: in("1", "0", ""), end: isRefused},
		{name: "the last place", set: in("1", fmt.Sprint(int64(math.MaxInt64)), ""), end: isRefused},
		{name: "a place after which there is none", set: in("1", fmt.Sprint(int64(math.MaxInt64-1)), ""), end: isRefused, only: "sqlite"},
		{name: "the last place, sent at the end of times", set: map[string]string{"seq": fmt.Sprint(int64(math.MaxInt64)), "enqueued_at": w.sqlMillis("253402300799999", "9999-12-31 23:59:59.999")}, end: isRefused},
		{name: "a place that the next ones do not have", set: map[string]string{"seq": fmt.Sprint(uint64(3) << 60), "enqueued_at": w.sqlTime(36500)}, end: isRefused, only: "sqlite"},
		{name: "a place far behind", set: in("1", fmt.Sprint(uint64(1)<<61), "")},
		{name: "a place far behind, sent at the end of times", set: map[string]string{"seq": fmt.Sprint(uint64(1)<<61 + 5), "enqueued_at": w.sqlMillis("253402300799999", "9999-12-31 23:59:59.999")}},
		{name: "a key that is a number", set: map[string]string{"order_key": "5"}, only: "sqlite"},
		{name: "a key that is a blob", set: map[string]string{"order_key": w.sqlBytes("\xFF\x00")}, end: isRefused, only: "sqlite"},
		{name: "due in a hundred years", set: map[string]string{"due_at": w.sqlTime(36500)}, end: waitsOn},
	})
	if w.Engine.Dialect.Traits().WatermarkFirst { // no read goes beyond the last number drawn
		rows = slices.DeleteFunc(rows, func(r foreignRow) bool { return strings.HasPrefix(r.name, "a place far behind") })
	}
	end := foreignStory{world: w, q: q, ids: map[chanq.ID]foreignRow{}}
	end.insert(rows)
	end.judge()
}

// foreignStory inserts rows and checks the outcome of each.
type foreignStory struct {
	*world
	q   *chanq.Queue[note]
	ids map[chanq.ID]foreignRow
}

func (s *foreignStory) insert(rows []foreignRow) {
	for i, r := range rows {
		if r.only != "" && r.only != s.Engine.Dialect.Name() {
			continue
		}
		set := map[string]string{"body": s.sqlBytes(fmt.Sprintf(`{"Text":%q}`, r.name))}
		id := chanq.ID{14: byte(i>>8) + 1, 15: byte(i)}
		if i > 0 {
			set["id"] = s.sqlID(id)
		}
		maps.Copy(set, r.set)
		columns := slices.Sorted(maps.Keys(set))
		values := make([]string, len(columns))
		for n, c := range columns {
			values[n] = set[c]
		}
		text := fmt.Sprintf("INSERT INTO chanq_work (%s) VALUES (%s)", strings.Join(columns, ", "), strings.Join(values, ", "))
		_, err := s.DB.ExecContext(s.Soon(), text)
		if r.end.refused {
			require.Error(s, err, r.name)
			continue
		}
		require.NoError(s, err, r.name)
		if r.end.text == "" {
			r.end.text = r.name
		}
		switch set["id"] {
		case "":
			entries, err := testdb.Peek(s.Soon(), s.q, chanqadmin.StateReady, 1)
			require.NoError(s, err)
			require.Len(s, entries, 1)
			id = entries[0].ID
			require.Equal(s, byte(7), id[6]>>4, "a UUIDv7")
		case s.sqlID(chanq.ID{}):
			id = chanq.ID{}
		}
		s.ids[id] = r
	}
}

func (s *foreignStory) judge() {
	for _, state := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased} {
		_, err := testdb.Peek(s.Soon(), s.q, state, 1000)
		require.NoError(s, err, "operators can list messages")
	}
	c := testdb.Start(s, s.q, chanq.ConsumerConfig{})
	ends := map[string]int{}
	for _, r := range s.ids {
		switch {
		case r.end.dead != "":
			ends["dead"]++
		case r.end.waits:
			ends["waits"]++
		default:
			ends["arrives"]++
		}
	}
	for range ends["arrives"] { // a message whose lease has expired is delivered by itself
		l := testdb.Take(s, c, 1)[0]
		r, ok := s.ids[l.ID]
		require.True(s, ok && r.end.dead == "" && !r.end.waits, "%s %s", l.ID, r.name)
		require.Equal(s, r.end.text, l.Body.Text, r.name)
		require.Equal(s, r.end.headers, l.Headers, r.name)
		require.Equal(s, max(r.end.attempt, 1), l.Attempt, r.name)
		require.NoError(s, l.Ack(), r.name)
		require.NoError(s, l.Wait(s.Soon()), r.name)
		delete(s.ids, l.ID)
	}
	testdb.Send(s, s.q, chanq.Message[note]{Body: note{"last"}})
	last := testdb.Take(s, c, 1)[0]
	require.Equal(s, "last", last.Body.Text, "the consumer continues")
	require.NoError(s, last.Ack())
	require.NoError(s, last.Wait(s.Soon()))
	s.Eventually("unreadable messages are dead", func() bool { return testdb.Stats(s, s.q).Dead == ends["dead"] })
	stats := testdb.Stats(s, s.q)
	require.Equal(s, ends["waits"], stats.Scheduled+stats.Leased, "waiting messages are still stored")
	require.Zero(s, stats.Ready)
	for id, r := range s.ids {
		e := testdb.Get(s, s.q, id)
		if r.end.waits {
			require.Contains(s, []chanqadmin.State{chanqadmin.StateScheduled, chanqadmin.StateLeased}, e.State, r.name)
			continue
		}
		require.Equal(s, chanqadmin.StateDead, e.State, r.name)
		require.Contains(s, e.LastError, r.end.dead, r.name)
	}
	require.NoError(s, c.Err())
}
