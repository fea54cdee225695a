package suite

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

var storing = []test{
	{"EveryStatementRunsInATransactionOfTheCallerToo", runsEverything},
	{"HostileValuesAreStoredAsTheyAre", hostileValues},
	{"TheClockTellsTheTime", clock},
	{"MigrationsMayRunAgain", migrateAgain},
	{"AMigrationConvertsExpiredLeasesOfVersion1", convertsFormer},
	{"AMigrationMarksNoDeathOfVersion2AsNew", noticesNoFormer},
	{"AMigrationConvertsExpiredLeasesOfVersion1", convertsFormer},
	{"TheRegistryIsMadeByTheStatementsThatItCounts", registry},
	{"WhatIsGivenIsStored", storesAll},
	{"EnqueueIsAllOrNothing", allOrNothing},
	{"EnqueueNewLeavesOutWhatIsThere", enqueueNew},
	{"EnqueueOverKeepsAQueuedMessage", keepsQueued},
	{"EnqueueOverReplacesAQueuedMessage", replacesQueued},
	{"EnqueueOverTakesTheKeyOfALeasedMessage", takesKey},
	{"EnqueueOverChangesNothingIfTheIDIsThere", sameIDOver},
	{"EnqueueOverOfDebounceMovesTheDueTimeUpToItsBound", debounces},
	{"TheInsertOfAnyProgramIsAMessage", plainInsert},
	{"APriorityWithoutALaneIsRefused", noLane},
	{"ATypeThatNoProducerSendsIsRefused", badType},
	{"EachStatementTakesTheMostThatTraitsSay", mostOfAll},
}

func runsEverything(w *world) {
	w.sendAll(1)
	for _, q := range []sqlbatch.Queue{w, w.InTx(), w.InOwnTx(), w.SkipLocked()} {
		for name, st := range Calls(q, "a") {
			if name == "enqueue" || name == "enqueue-new" {
				w.exec("DELETE FROM chanq_orders")
			}
			tx, err := w.DB.Begin()
			require.NoError(w, err)
			_, err = Rows(w.Context(), tx, st)
			require.NoError(w, err, name)
			require.NoError(w, tx.Rollback(), name)
		}
	}
}

func hostileValues(w *world) {
	value := Hostile
	if w.Engine.Dialect.Name() == "postgres" {
		value = strings.ReplaceAll(value, "\x00", "") // a text cannot contain it
	}
	calls := Calls(w, value)
	w.run(calls["enqueue"])
	require.Equal(w, list(value, value, value), EntryOf(w, w.run(calls["get"])[0]).of("dedup_key", "headers", "body"))
	delete(calls, "enqueue") // it would be a duplicate the second time
	w.inTx(calls["lock"])    // Drop requires this lock
	delete(calls, "lock")
	for _, st := range calls {
		w.run(st)
	}
	require.Len(w, w.run(w.Stats(1)), 1, "the tables are there")
}

func clock(w *world) { require.InDelta(w, time.Now().UnixMilli(), w.now(), 30_000) }

func migrateAgain(w *world) {
	w.sendAll(1)
	testdb.MigrateTables(w, w.Engine.Dialect, w.Tables(), Orders)
	require.Equal(w, [][]any{list(sqlbatch.Version, sqlbatch.Least, 0, 0, 1, 0, 0, 0, 20, 1<<20, 0, 0, 0, 0, "", nil, nil, nil)}, w.stored())
	w.run(w.Record(sqlbatch.Version-1, sqlbatch.Policy{MaxAttempts: 5, MaxBody: 6, Retain: time.Second, RetainDead: time.Minute}))
	require.Equal(w, [][]any{list(sqlbatch.Version, sqlbatch.Least, 0, 0, 1, 0, 0, 0, 5, 6, 1000, 60_000, 0, 0, "", nil, nil, nil)}, w.stored(), "no version is lowered")
	w.run(w.Configure(sqlbatch.Policy{Holds: true, MaxKeys: 9, MaxAttempts: 7, MaxBody: 8, RetainDead: time.Second}))
	require.Equal(w, [][]any{list(sqlbatch.Version, sqlbatch.Least, 0, 0, 1, 0, 1, 9, 7, 8, 0, 1000, 0, 0, "", nil, nil, nil)}, w.stored())
	require.Equal(w, []byte{1}, w.claim(10))
}

// convertsFormer tests that messages of version 1 keep their place, their failures and at least one crash.
func convertsFormer(w *world) {
	w.leased(1, 2, 3)
	w.exec("UPDATE chanq_orders SET lapses = 9, attempts = 12 WHERE %s", w.is(1))
	w.exec("UPDATE chanq_orders SET lapses = 7, attempts = 8 WHERE %s", w.is(2))
	before := w.get(1)
	w.exec("UPDATE chanq__queues SET version = 1, min_version = 1")
	testdb.MigrateTables(w, w.Engine.Dialect, w.Tables(), Orders)
	require.Equal(w, list(sqlbatch.Version, sqlbatch.Least), w.stored()[0][:2], "a program of version 1 refuses it")
	require.Equal(w, before.of("due_at", "fence", "state", "leased_by"), w.get(1).of("due_at", "fence", "state", "leased_by"))
	require.Equal(w, list(10, 8, 1), []any{w.get(1)["attempts"], w.get(2)["attempts"], w.get(3)["attempts"]})
	w.expire(1, 2, 3)
	rows := ClaimedRows(w, w.run(w.Claim(ClaimOf(10))))
	require.Equal(w, []int64{8, 8, 1}, []int64{rows[1].Lapses, rows[2].Lapses, rows[3].Lapses})
	w.exec("UPDATE chanq_orders SET lapses = 9, attempts = 12")
	testdb.MigrateTables(w, w.Engine.Dialect, w.Tables(), Orders)
	w.expire(1, 2, 3)
	require.EqualValues(w, 10, ClaimedRows(w, w.run(w.Claim(ClaimOf(10))))[1].Lapses, "once")
}

// noticesNoFormer tests that messages which died before there was a column for it are not new, and all later ones are.
func noticesNoFormer(w *world) {
	for _, table := range []string{"chanq_orders", "chanq_orders__dead", "chanq_orders__done"} {
		w.Define("DROP TABLE " + table)
	}
	for _, text := range w.Engine.Dialect.Migrations(Orders)[0].Statements {
		if strings.Contains(text, "CREATE TABLE") && strings.Contains(text, "history") {
			w.Define(newLines.ReplaceAllString(text, ""))
		}
	}
	w.exec("UPDATE chanq__queues SET version = 2, min_version = 2")
	die := func(n byte) { // as a program of version 2 writes it
		w.Helper()
		id := strings.TrimPrefix(w.is(n), "id = ")
		w.exec("INSERT INTO chanq_orders__dead (id, priority, fence, attempts, enqueued_at, ended_at, cause, body) VALUES (%s, 0, 1, 1, %s, %s, 2, %s)", id, w.at(7), w.at(7), w.bytes(nil))
	}
	later := w.Engine.Dialect.Name() == "sqlserver" // the emulator changes only empty tables
	if !later {
		die(1)
	}
	for range 2 {
		testdb.MigrateTables(w, w.Engine.Dialect, w.Tables(), Orders)
		require.Equal(w, list(3, 2), w.stored()[0][:2], "programs of version 2 can use it")
	}
	if later {
		die(1)
		w.exec("UPDATE chanq_orders__dead SET noticed_at = NULL")
	}
	fresh := func() (n int) {
		w.Helper()
		require.NoError(w, w.DB.QueryRow("SELECT COUNT(*) FROM chanq_orders__dead WHERE noticed_at = "+w.at(0)).Scan(&n))
		return n
	}
	require.Zero(w, fresh())
	end := func(n byte) {
		w.Helper()
		require.Len(w, w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: w.leased(n)[0], Cause: sqlbatch.CauseRejected}})), 1)
	}
	end(2)
	require.Equal(w, 1, fresh())
	w.exec("UPDATE chanq_orders__dead SET noticed_at = %s", w.at(9))
	end(2)
	require.Equal(w, 1, fresh(), "its ID was sent again, and it has died again")
	die(3)
	if w.Engine.Dialect.Name() != "sqlite" {
		require.Equal(w, 2, fresh(), "a program of version 2 dead-letters")
	}
}

// newLines are the columns that version 3 has added, in the texts that create the tables.
var newLines = regexp.MustCompile(`\n *(noticed_at|history) [^\n]*,`)

// stored returns the row of Version without the identity, which it checks.
func (w *world) stored() [][]any {
	rows := w.run(w.Version())
	at := len(rows[0]) - 1
	require.Regexp(w, `/[0-9]{12,13}$`, rows[0][at], "the name of the database and when the queue was created")
	rows[0] = rows[0][:at]
	return rows
}

func registry(w *world) {
	others := sqlbatch.Names{Queue: "others"}
	w.Define("DROP TABLE chanq__queues")
	m := w.Engine.Dialect.Migrations(others)[0]
	for _, text := range m.Statements[:m.Registry] {
		w.Define(text)
	}
	q := w.Engine.Dialect.Queue(others)
	require.Empty(w, w.run(q.Version()), "it can be asked for")
	_, err := w.try(q.Enqueue([]sqlbatch.Row{{ID: ID(1)}}))
	require.Equal(w, sqlbatch.NoSchema, w.Engine.Dialect.Classify(err), "the rest comes once the version is known: %v", err)
}

func storesAll(w *world) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	w.send(
		sqlbatch.Row{ID: ID(1), Body: []byte{}},
		sqlbatch.Row{ID: ID(2), Priority: -1, Headers: all, Body: all},
		sqlbatch.Row{ID: ID(3), Priority: 2, Delay: time.Hour, Key: `"\{},é`, Body: []byte("b")},
		sqlbatch.Row{ID: ID(4), Key: "k", Type: "t", Headers: []byte("h"), Body: []byte("last")},
		sqlbatch.Row{ID: ID(5), Type: longestType, Body: []byte("b")},
		sqlbatch.Row{ID: ID(6), Type: "a b", Headers: []byte("h")},
	)
	first := w.get(1)
	require.Equal(w, list("ready", nil, nil, nil), first.of("state", "headers", "dedup_key", "type"))
	require.Empty(w, first["body"])
	require.Equal(w, first["enqueued_at"], first["due_at"])
	require.Equal(w, list(-1, string(all), string(all), nil), w.get(2).of("priority", "headers", "body", "dedup_key"))
	third := w.get(3)
	require.Equal(w, list("scheduled", 2, `"\{},é`), third.of("state", "priority", "dedup_key"))
	require.Equal(w, third["enqueued_at"].(int64)+time.Hour.Milliseconds(), third["due_at"])
	require.Equal(w, list("k", "t", "h", "last"), w.get(4).of("dedup_key", "type", "headers", "body"))
	require.Equal(w, list(nil, longestType, nil, "b"), w.get(5).of("dedup_key", "type", "headers", "body"))
	require.Equal(w, list(nil, "a b", "h"), w.get(6).of("dedup_key", "type", "headers"))
}

var longestType = strings.Repeat(" ~", sqlbatch.MaxType/2)

// badType tests that the tables refuse a type that chanq would not send, from any program.
func badType(w *world) {
	for _, kind := range []string{"", longestType + ".", "a\tb", "é", "\x7f"} {
		w.refusesType("'" + kind + "'")
	}
}

func (w *world) refusesType(literal string) {
	w.Helper()
	column := "type"
	if w.Engine.Dialect.Name() == "sqlserver" {
		column, literal = "[type]", "CONVERT(varbinary(200), "+literal+")" // the emulator's parser accepts the name only in brackets
	}
	_, err := w.DB.Exec(fmt.Sprintf("INSERT INTO chanq_orders (%s, body) VALUES (%s, %s)", column, literal, w.bytes([]byte("b"))))
	require.Equal(w, sqlbatch.BadRow, w.Engine.Dialect.Classify(err), "%s: %v", literal, err)
}

func allOrNothing(w *world) {
	w.sendAll(2)
	_, err := w.try(w.Enqueue([]sqlbatch.Row{{ID: ID(1)}, {ID: ID(2)}}))
	require.Equal(w, sqlbatch.Duplicate, w.Engine.Dialect.Classify(err))
	require.Equal(w, []byte{2}, w.claim(10))
}

func enqueueNew(w *world) {
	w.send(sqlbatch.Row{ID: ID(1)}, sqlbatch.Row{ID: ID(2), Key: `a"b`})
	rows := []sqlbatch.Row{{ID: ID(3), Key: "z"}, {ID: ID(1)}, {ID: ID(4), Key: `a"b`}, {ID: ID(5)}}
	require.ElementsMatch(w, []byte{3, 5}, Numbers(w.run(w.EnqueueNew(rows))))
	_, err := w.try(w.Enqueue([]sqlbatch.Row{{ID: ID(6), Key: "z"}}))
	require.Equal(w, sqlbatch.Duplicate, w.Engine.Dialect.Classify(err), "by its key")

	w.exec("UPDATE chanq_orders SET fence = 5")
	var found [][]any
	for _, row := range w.run(w.Find(ids(1, 9), []string{`a"b`, "none"})) {
		found = append(found, []any{row[0].(string)[0], row[1], row[2]})
	}
	require.ElementsMatch(w, [][]any{{byte(1), nil, int64(5)}, {byte(2), `a"b`, int64(0)}}, found)
}

// over returns rows that do this with messages that have their keys.
func over(does sqlbatch.OnDuplicate, rows ...sqlbatch.Row) []sqlbatch.Row {
	for i := range rows {
		if rows[i].Key != "" {
			rows[i].OnDuplicate = does
		}
	}
	return rows
}

// overs are what EnqueueOver does.
var overs = []sqlbatch.OnDuplicate{sqlbatch.KeepQueued, sqlbatch.Replace, sqlbatch.Debounce}

// storeOver runs EnqueueOver, and returns the first byte of each ID and its key.
func (w *world) storeOver(q sqlbatch.Queue, does sqlbatch.OnDuplicate, rows ...sqlbatch.Row) (met map[byte]any) {
	w.Helper()
	met = map[byte]any{}
	for _, row := range w.run(q.EnqueueOver(over(does, rows...))) {
		met[row[0].(string)[0]] = row[1]
	}
	return met
}

func keepsQueued(w *world) {
	w.send(sqlbatch.Row{ID: ID(1), Key: `a"\b`, Body: []byte("old")}, sqlbatch.Row{ID: ID(2), Key: "later", Delay: time.Hour, Body: []byte("old")})
	before := []Entry{w.get(1), w.get(2)}
	met := w.storeOver(w, sqlbatch.KeepQueued, sqlbatch.Row{ID: ID(5)}, sqlbatch.Row{ID: ID(3), Key: "later", Body: []byte("new")},
		sqlbatch.Row{ID: ID(4), Key: `a"\b`, Body: []byte("new")}, sqlbatch.Row{ID: ID(6), Key: "free", Type: "t", Headers: []byte("h"), Priority: 1, Body: []byte("new")})
	require.Equal(w, map[byte]any{1: `a"\b`, 2: "later", 5: nil, 6: "free"}, met)
	require.Equal(w, before, []Entry{w.get(1), w.get(2)})
	require.Equal(w, list("ready", 1, "t", "h", "new"), w.get(6).of("state", "priority", "type", "headers", "body"))
	require.Empty(w, w.run(w.Look(ids(3, 4))))

	// It expires at the later end.
	w.exec("DELETE FROM chanq_orders")
	ends := func(ttl time.Duration, n byte) any {
		w.storeOver(w, sqlbatch.KeepQueued, sqlbatch.Row{ID: ID(n), Key: "ends", TTL: ttl})
		return w.get(1)["expires_at"]
	}
	hour := ends(time.Hour, 1)
	require.Equal(w, hour, ends(time.Minute, 2))
	require.Greater(w, ends(2*time.Hour, 3), hour)
	require.Nil(w, ends(0, 4))
	require.Nil(w, ends(time.Hour, 5))
}

func replacesQueued(w *world) {
	w.send(sqlbatch.Row{ID: ID(1), Key: "a", TTL: time.Hour, Type: "was", Headers: []byte("was"), Body: []byte("old")},
		sqlbatch.Row{ID: ID(2), Key: "b", Delay: time.Hour, Body: []byte("old")})
	require.Equal(w, []byte{1}, w.claim(10))
	w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(1)[0], Error: "failed"}}))
	require.Equal(w, []byte{1}, w.claim(10))
	w.expire(1)
	before := w.get(1)
	require.Equal(w, list(2, "failed"), before.of("attempts", "last_error"))
	due := []any{before["due_at"], w.get(2)["due_at"]}
	met := w.storeOver(w, sqlbatch.Replace, sqlbatch.Row{ID: ID(3), Key: "a", Body: []byte("new")},
		sqlbatch.Row{ID: ID(4), Key: "b", TTL: 2 * time.Hour, Type: "is", Headers: []byte("is"), Body: []byte("new")}, sqlbatch.Row{ID: ID(5), Key: "c"})
	require.Equal(w, map[byte]any{1: "a", 2: "b", 5: "c"}, met)
	after := w.get(1)
	require.Equal(w, list("ready", nil, nil, nil, "new", 0, nil, nil, due[0], before["enqueued_at"], "a"),
		after.of("state", "type", "headers", "expires_at", "body", "attempts", "last_error", "history", "due_at", "enqueued_at", "dedup_key"))
	require.Greater(w, after["fence"], before["fence"], "no former holder settles the new body")
	second := w.get(2)
	require.Equal(w, list("scheduled", "is", "is", "new", due[1]), second.of("state", "type", "headers", "body", "due_at"))
	require.Equal(w, second["due_at"].(int64)+(2*time.Hour).Milliseconds(), second["expires_at"], "from its due time on")
	require.EqualValues(w, 0, ClaimedRows(w, w.run(w.Claim(ClaimOf(10))))[1].Lapses)

	// A message that moves to another priority is due now: claims have passed its old due time there.
	w.send(sqlbatch.Row{ID: ID(7), Key: "d"}, sqlbatch.Row{ID: ID(8), Key: "e", Delay: time.Hour})
	was := []any{w.get(7)["due_at"], w.get(8)["due_at"]}
	w.storeOver(w.InTx(), sqlbatch.Replace, sqlbatch.Row{ID: ID(9), Key: "d", Priority: 2}, sqlbatch.Row{ID: ID(10), Key: "e", Priority: 2})
	require.EqualValues(w, 2, w.get(7)["priority"])
	require.Greater(w, w.get(7)["due_at"], was[0])
	require.Equal(w, was[1], w.get(8)["due_at"])
}

func takesKey(w *world) {
	for _, does := range overs {
		for _, lapsed := range []bool{false, true} { // also without a rescue the holder can ack, and has handled the old message
			w.exec("DELETE FROM chanq_orders")
			w.send(sqlbatch.Row{ID: ID(1), Key: "a", Body: []byte("old")})
			require.Equal(w, []byte{1}, w.claim(10))
			if lapsed {
				w.lapse(1)
			}
			before := w.get(1)
			row := sqlbatch.Row{ID: ID(2), Key: "a", Delay: time.Hour, DebounceMax: time.Hour, Body: []byte("new")}
			require.Equal(w, map[byte]any{2: "a"}, w.storeOver(w, does, row), does)
			before["dedup_key"] = nil
			require.Equal(w, before, w.get(1), does)
			require.Equal(w, list("scheduled", "a", "new"), w.get(2).of("state", "dedup_key", "body"))
			require.Len(w, w.run(w.Ack(w.items(1))), 1, "its lease is as it was")
		}
	}
}

// sameIDOver repeats a send whose outcome was unknown.
func sameIDOver(w *world) {
	for _, does := range overs {
		w.exec("DELETE FROM chanq_orders")
		row := sqlbatch.Row{ID: ID(1), Key: "a", Delay: time.Second, DebounceMax: time.Hour, Body: []byte("first")}
		w.storeOver(w, does, row)
		stored := w.get(1)
		require.Empty(w, w.storeOver(w, does, row), does)
		require.Equal(w, stored, w.get(1), "queued")

		w.shift("chanq_orders.due_at", -time.Hour, w.is(1))
		require.Equal(w, []byte{1}, w.claim(1))
		leased := w.get(1)
		require.Empty(w, w.storeOver(w, does, row), does)
		require.Equal(w, leased, w.get(1), "leased")

		other := row
		other.ID, other.Body = ID(2), []byte("second")
		require.Equal(w, map[byte]any{2: "a"}, w.storeOver(w, does, other))
		require.Empty(w, w.storeOver(w, does, row))
		require.Equal(w, list("a", "second"), w.get(2).of("dedup_key", "body"), "the first is there, though without its key")
		w.shift("chanq_orders.due_at", -time.Hour, w.is(2))
		require.Equal(w, []byte{2}, w.claim(1))
		require.Empty(w, w.storeOver(w, does, row))
		require.Equal(w, "a", w.get(2)["dedup_key"])
	}
}

func debounces(w *world) {
	row := sqlbatch.Row{ID: ID(1), Key: "a", Delay: time.Hour, DebounceMax: 90 * time.Minute}
	send := func(n byte) Entry {
		row.ID = ID(n)
		require.Equal(w, map[byte]any{1: "a"}, w.storeOver(w, sqlbatch.Debounce, row))
		return w.get(1)
	}
	first := send(1)
	sent, hour := first["enqueued_at"].(int64), time.Hour.Milliseconds()
	require.Equal(w, sent+hour, first["due_at"])
	second := send(2)
	require.Greater(w, second["due_at"], first["due_at"], "it is due an hour after the last send")
	require.InDelta(w, w.now()+hour, second["due_at"], 10_000)
	require.Equal(w, sent, second["enqueued_at"])
	w.shift("chanq_orders.enqueued_at", -time.Hour, w.is(1))
	require.Equal(w, sent-hour+(90*time.Minute).Milliseconds(), send(3)["due_at"], "90 minutes after the first")
	w.shift("chanq_orders.enqueued_at", -time.Hour, w.is(1))
	late := send(4)["due_at"].(int64)
	require.InDelta(w, w.now(), late, 10_000, "the bound is over: it is due now")
	require.Equal(w, late, send(5)["due_at"], "and keeps its place")
	row.Priority = 1
	require.Greater(w, send(6)["due_at"], late, "a new place has it in another priority")
	require.Equal(w, []byte{1}, w.claim(10))
}

// A program without chanq sends with an INSERT of a body.
func plainInsert(w *world) {
	before := w.now()
	for range 20 {
		body := w.bytes([]byte("b"))
		w.exec("INSERT INTO chanq_orders (body) VALUES (%[1]s), (%[1]s), (%[1]s)", body)
	}
	after := w.now()
	seen := map[string]bool{}
	for _, r := range w.run(w.Claim(ClaimOf(100))) {
		id := r[0].(string)
		ms := int64(0)
		for _, b := range []byte(id[:6]) {
			ms = ms<<8 | int64(b)
		}
		require.GreaterOrEqual(w, ms, before-1, "SQL Server rounds its clock, and cuts the time in an id")
		require.LessOrEqual(w, ms, after)
		require.EqualValues(w, 7, id[6]>>4, "the version: %x", id)
		require.EqualValues(w, 2, id[8]>>6, "the variant: %x", id)
		seen[id] = true
		require.Equal(w, list(0, 1, 0, 0, nil, nil, nil, nil, "b"), []any{r[1], r[3], r[4], r[5], r[8], r[9], r[10], r[11], r[12]})
		require.GreaterOrEqual(w, r[6], before)
		require.LessOrEqual(w, r[6], after)
		require.Equal(w, r[6], r[7], "due when it was sent")
	}
	require.Len(w, seen, 60)
}

func noLane(w *world) {
	for _, priority := range []int{-2, 3} {
		_, err := w.DB.Exec(fmt.Sprintf("INSERT INTO chanq_orders (priority, body) VALUES (%d, %s)", priority, w.bytes([]byte("b"))))
		require.Equal(w, sqlbatch.BadRow, w.Engine.Dialect.Classify(err), "%d: %v", priority, err)
	}
}

func mostOfAll(w *world) {
	traits := w.Engine.Dialect.Traits()
	longest := strings.Repeat("ü", sqlbatch.MaxError) // twice as many bytes as are stored
	var all []sqlbatch.Row
	for n := range traits.ClaimRows {
		row := sqlbatch.Row{ID: [16]byte{byte(n >> 8), byte(n)}, Priority: int8(n%4 - 1), Delay: sqlbatch.MaxDelay, Key: fmt.Sprintf("%0*d", sqlbatch.MaxKey, n), Body: []byte{byte(n)}}
		if n%100 == 0 {
			row.Headers = []byte(strings.Repeat("h", 16<<10))
		}
		all = append(all, row)
	}
	for rows := range slices.Chunk(all, traits.EnqueueRows) {
		w.send(rows...)
		require.Empty(w, w.run(w.EnqueueNew(rows)), "all are there")
	}
	w.exec("UPDATE chanq_orders SET due_at = %s", w.at(0))
	p := ClaimOf(traits.ClaimRows)
	p.Lease, p.Salt = sqlbatch.MaxDelay, 1<<sqlbatch.FenceBits
	require.Len(w, w.run(w.Claim(p)), len(all))

	const fence = sqlbatch.LastFence - 5 // each of the following statements adds one, except for the extension
	w.exec("UPDATE chanq_orders SET fence = %d", int64(fence))
	var items []sqlbatch.Item
	var nacks []sqlbatch.NackItem
	var releases []sqlbatch.Item
	var deadLetters []sqlbatch.DeadLetterItem
	for _, row := range all {
		item := sqlbatch.Item{ID: row.ID, Fence: fence}
		items = append(items, item)
		nacks = append(nacks, sqlbatch.NackItem{Item: item, Delay: sqlbatch.MaxDelay, Error: longest})
		item.Fence++
		releases = append(releases, item)
		item.Fence++
		deadLetters = append(deadLetters, sqlbatch.DeadLetterItem{Item: item, Error: longest})
	}
	settleAll(w, items, traits.AckItems, func(i []sqlbatch.Item) sqlbatch.Statement { return w.Extend(Consumer, i, sqlbatch.MaxDelay) })
	settleAll(w, nacks, traits.NackItems, w.Nack)
	require.Equal(w, longest[:sqlbatch.MaxError], w.get(0)["last_error"])
	settleAll(w, Releases(releases), traits.AckItems, w.Release)
	settleAll(w, deadLetters, traits.DeadLetterItems, w.DeadLetter)
	require.Len(w, w.run(w.Redrive(len(all), nil, sqlbatch.Window{})), len(all))
	for rows := range slices.Chunk(all, traits.FindIDs) {
		var ids [][16]byte
		for _, row := range rows {
			ids = append(ids, row.ID)
		}
		require.Len(w, w.run(w.Find(ids, nil)), len(ids))
		require.Len(w, w.run(w.Cancel(ids)), len(ids))
	}
}

// settleAll settles as many items at once as one statement takes, and each must apply.
func settleAll[T any](w *world, all []T, most int, settle func([]T) sqlbatch.Statement) {
	w.Helper()
	for some := range slices.Chunk(all, most) {
		require.Len(w, w.run(settle(some)), len(some))
	}
}

// SendsOver sends messages that keep or replace another one.
func SendsOver(ctx context.Context, q *chanq.Queue[string]) error {
	for _, does := range overs {
		for range 2 {
			m := chanq.Message[string]{Body: "b", DedupKey: "over", OnDuplicate: does}
			if does == chanq.Debounce {
				m.Delay = time.Hour
			}
			if _, err := q.Send(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}
