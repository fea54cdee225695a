package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// world is a queue called orders in a separate database.
type world struct {
	*testdb.World
	sqlbatch.Queue
}

// Rows returns the rows of a statement. Bytes are converted to strings, since drivers return texts as either
// type.
func Rows(ctx context.Context, on testdb.Runner, st sqlbatch.Statement) ([][]any, error) {
	rows, err := testdb.Rows(ctx, on, st)
	for _, row := range rows {
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = string(b)
			}
		}
	}
	return rows, err
}

func (w *world) try(st sqlbatch.Statement) ([][]any, error) {
	if len(st.Prior) == 0 {
		return Rows(w.Soon(), w.DB, st)
	}
	tx, err := w.DB.BeginTx(w.Soon(), nil)
	require.NoError(w, err)
	rows, err := Rows(w.Soon(), tx, st)
	require.NoError(w, tx.Commit())
	return rows, err
}

// run runs a statement in a separate millisecond. In a bubble all would share one: the times in the tables
// are milliseconds, and some statements compare them.
func (w *world) run(st sqlbatch.Statement) [][]any {
	w.Helper()
	time.Sleep(2 * time.Millisecond)
	rows, err := w.try(st)
	require.NoError(w, err, st.Text)
	return rows
}

// inTx runs a statement in a transaction of the caller, and commits.
func (w *world) inTx(st sqlbatch.Statement) [][]any {
	w.Helper()
	time.Sleep(2 * time.Millisecond)
	tx, err := w.DB.Begin()
	require.NoError(w, err)
	defer tx.Rollback()
	rows, err := Rows(context.Background(), tx, st)
	require.NoError(w, err, st.Text)
	require.NoError(w, tx.Commit())
	return rows
}

func (w *world) exec(format string, args ...any) {
	w.Helper()
	w.Exec(fmt.Sprintf(format, args...))
}

// dropTables drops the queue.
func (w *world) dropTables() {
	w.Helper()
	for _, st := range w.Drop() {
		_, err := Rows(context.Background(), w.Tables(), st)
		require.NoError(w, err, st.Text)
	}
}

// shift moves a time of some rows by d: "chanq_orders.due_at".
func (w *world) shift(column string, d time.Duration, where string) {
	w.Helper()
	table, column, _ := strings.Cut(column, ".")
	moved := fmt.Sprintf("%s + %d", column, d.Milliseconds())
	if w.Engine.Dialect.Name() == "sqlserver" {
		moved = fmt.Sprintf("DATEADD(millisecond, %d, %s)", d.Milliseconds(), column)
	}
	w.exec("UPDATE %s SET %s = %s WHERE %s", table, column, moved, where)
}

// at returns a time as the tables store it, in seconds since 1970.
func (w *world) at(seconds int64) string {
	if w.Engine.Dialect.Name() == "sqlserver" {
		const day = 24 * 60 * 60 // a count of seconds is an int
		return fmt.Sprintf("DATEADD(second, %d, DATEADD(day, %d, '19700101'))", seconds%day, seconds/day)
	}
	return fmt.Sprint(seconds * 1000)
}

// bytes returns a value of a body.
func (w *world) bytes(b []byte) string {
	return fmt.Sprintf(map[string]string{"sqlserver": "0x%x", "postgres": `'\x%x'`, "sqlite": "x'%x'"}[w.Engine.Dialect.Name()], b)
}

// is returns the condition that a row has the id of a number.
func (w *world) is(n byte) string {
	id := ID(n)
	if w.Engine.Dialect.Name() == "postgres" {
		return fmt.Sprintf("id = '%x'", id)
	}
	return "id = " + w.bytes(id[:])
}

func (w *world) now() int64 {
	w.Helper()
	return w.run(w.Clock())[0][0].(int64)
}

// ID returns the id of a number.
func ID(n byte) [16]byte { return [16]byte{n} }

func ids(ns ...byte) (all [][16]byte) {
	for _, n := range ns {
		all = append(all, ID(n))
	}
	return all
}

// IDOf returns an id in a row of Rows.
func IDOf(v any) [16]byte { return [16]byte([]byte(v.(string))) }

// Numbers returns the first bytes of the ids that a statement returned.
func Numbers(rows [][]any) (ns []byte) {
	for _, row := range rows {
		id := IDOf(row[0])
		ns = append(ns, id[0])
	}
	return ns
}

// shown returns up to n messages of a state behind a place, with Peek's columns: live ones as in Get.
func (w *world) shown(s sqlbatch.State, n int, after *sqlbatch.Place) (rows [][]any) {
	w.Helper()
	if !s.Live() {
		return w.run(w.Peek(s, n, after))
	}
	for _, row := range w.run(w.Browse(s, 1000, after, sqlbatch.Filter{})) {
		if row[0] == string(s) && len(rows) < n {
			found := w.run(w.Get([16]byte([]byte(row[1].(string))))) // a dead or done message may have the same ID
			rows = append(rows, slices.DeleteFunc(found, func(row []any) bool { return row[0] != string(s) })...)
		}
	}
	return rows
}

// inState returns the first bytes of the ids of messages in a state.
func (w *world) inState(s sqlbatch.State, n int) (ns []byte) {
	w.Helper()
	for _, row := range w.shown(s, n, nil) {
		ns = append(ns, row[1].(string)[0])
	}
	return ns
}

// Items returns the id, fence pairs that a settle or Look returned. In the rows of a claim the fence is the
// third column.
func Items(rows [][]any, fence int) (items []sqlbatch.Item) {
	for _, row := range rows {
		if row[0] == nil { // an ack of all
			return []sqlbatch.Item{{}}
		}
		items = append(items, sqlbatch.Item{ID: IDOf(row[0]), Fence: row[fence].(int64)})
	}
	return items
}

// Acked returns the items of the rows that an ack of items returned.
func Acked(rows [][]any, items ...sqlbatch.Item) []sqlbatch.Item {
	if acked := Items(rows, 1); !slices.Equal(acked, []sqlbatch.Item{{}}) {
		return acked
	}
	return items
}

// items names the current leases of live messages.
func (w *world) items(ns ...byte) (items []sqlbatch.Item) {
	w.Helper()
	for _, n := range ns {
		found := Items(w.run(w.Look(ids(n))), 1)
		require.Len(w, found, 1)
		items = append(items, found...)
	}
	return items
}

func (w *world) send(rows ...sqlbatch.Row) {
	w.Helper()
	require.Empty(w, w.run(w.Enqueue(rows)))
}

// sendAll sends a message for each number.
func (w *world) sendAll(ns ...byte) {
	w.Helper()
	var rows []sqlbatch.Row
	for _, n := range ns {
		rows = append(rows, sqlbatch.Row{ID: ID(n)})
	}
	w.send(rows...)
}

// Consumer is the consumer that claims.
var Consumer = [16]byte{0xA0, 15: 0x0A}

// ClaimOf claims n messages.
func ClaimOf(n int) sqlbatch.ClaimParams {
	return sqlbatch.ClaimParams{Rows: n, Lease: time.Minute, Consumer: Consumer, Salt: 1, Inline: sqlbatch.MaxBody}
}

func (w *world) claim(n int) []byte {
	w.Helper()
	return Numbers(w.run(w.Claim(ClaimOf(n))))
}

// rescue ends all expired leases, without delays, and returns their messages.
func (w *world) rescue() (all []byte) {
	w.Helper()
	for p := sqlbatch.PriorityLow; p <= sqlbatch.PriorityUrgent; p++ {
		all = append(all, Numbers(w.run(w.Rescue(sqlbatch.RescueParams{Priority: int8(p), MaxCrashes: 1})))...)
	}
	slices.Sort(all)
	return all
}

// expire is lapse and rescue.
func (w *world) expire(ns ...byte) {
	w.Helper()
	w.lapse(ns...)
	require.ElementsMatch(w, ns, w.rescue())
}

// leased makes these messages the only ones, and claims them.
func (w *world) leased(ns ...byte) []sqlbatch.Item {
	w.Helper()
	w.exec("DELETE FROM chanq_orders")
	w.sendAll(ns...)
	require.Len(w, w.claim(1000), len(ns))
	return w.items(ns...)
}

// lapse expires the leases of these messages.
func (w *world) lapse(ns ...byte) {
	w.Helper()
	for _, n := range ns {
		w.shift("chanq_orders.lease_until", -24*time.Hour, w.is(n))
	}
}

// deadLetter dead-letters messages one after the other, so that keys can repeat.
func (w *world) deadLetter(rows ...sqlbatch.Row) {
	w.Helper()
	for _, row := range rows {
		w.send(row)
		require.Len(w, w.claim(1), 1)
		require.Len(w, w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: w.items(row.ID[0])[0], Cause: sqlbatch.CauseRejected}})), 1)
	}
}

// Claimed is one row that a claim returned.
type Claimed struct {
	ID                               byte
	Priority, Fence, Attempts        int64
	Lapses, Expired, EnqueuedAt, Due int64
	ExpiresAt, Key, Type             any
	Headers, Body                    any
	Size                             int64
}

// ClaimedRows returns the rows that a claim returned, by the first byte of their ids.
func ClaimedRows(t require.TestingT, rows [][]any) map[byte]Claimed {
	all := map[byte]Claimed{}
	for _, r := range rows {
		require.Len(t, r, 14)
		id := IDOf(r[0])
		all[id[0]] = Claimed{id[0], r[1].(int64), r[2].(int64), r[3].(int64), r[4].(int64), r[5].(int64), r[6].(int64), r[7].(int64), r[8], r[9], r[10], r[11], r[12], r[13].(int64)}
	}
	return all
}

// Entry is a row of Get or Peek, by column.
type Entry map[string]any

// entryColumns are the columns of Get and Peek. For an ordered queue three more follow.
var entryColumns = []string{"state", "id", "priority", "fence", "attempts", "enqueued_at", "due_at", "lease_until", "ended_at", "expires_at", "leased_by", "holder", "dedup_key", "type", "last_error", "history", "cause", "fingerprint", "headers", "body"}

// EntryOf returns the entry of a row.
func EntryOf(t require.TestingT, row []any) Entry {
	columns := entryColumns
	if len(row) > len(columns) { // of an ordered queue
		columns = append(slices.Clip(columns), "slot", "seq", "order_key")
	}
	require.Len(t, row, len(columns))
	e := Entry{}
	for i, c := range columns {
		e[c] = row[i]
	}
	return e
}

func (w *world) get(n byte) Entry {
	w.Helper()
	rows := w.run(w.Get(ID(n)))
	require.Len(w, rows, 1)
	return EntryOf(w, rows[0])
}

// of returns the values of these columns.
func (e Entry) of(columns ...string) (values []any) {
	for _, c := range columns {
		values = append(values, e[c])
	}
	return values
}

// list returns values to compare with.
func list(values ...any) []any {
	for i, v := range values {
		if n, ok := v.(int); ok {
			values[i] = int64(n)
		}
	}
	return values
}

// HeadsAt returns the heads with these times, from the lowest priority up.
func HeadsAt(due ...int64) (heads sqlbatch.Heads) {
	for i := range due {
		heads[i].Due = due[i]
	}
	return heads
}
