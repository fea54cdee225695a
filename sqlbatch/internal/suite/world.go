package suite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// Runner is a *sql.DB, *sql.Conn or *sql.Tx.
type Runner interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
}

// world is a queue called orders in a database of its own.
type world struct {
	*testing.T
	dialect sqlbatch.Dialect
	db      *sql.DB
	tables  *sql.DB // where they can be made and dropped
	sqlbatch.Queue
}

// Migrate makes the tables of a queue.
func Migrate(t testing.TB, d sqlbatch.Dialect, db *sql.DB, n sqlbatch.Names) {
	t.Helper()
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	texts := d.Begin()
	for _, m := range d.Migrations(n) {
		texts = append(texts, m.Statements...)
	}
	for _, text := range append(texts, d.Commit()) {
		_, err := conn.ExecContext(ctx, text)
		require.NoError(t, err, text)
	}
	_, err = Rows(ctx, conn, d.Queue(n).Record(sqlbatch.Version))
	require.NoError(t, err)
}

// Rows runs a statement and returns the rows of all its results. Bytes are strings
// there, since drivers differ in which of the two a text is.
func Rows(ctx context.Context, on Runner, st sqlbatch.Statement) (all [][]any, err error) {
	for _, prior := range st.Prior {
		if _, err := on.ExecContext(ctx, prior.Text, prior.Args...); err != nil {
			return nil, err
		}
	}
	rows, err := on.QueryContext(ctx, st.Text, st.Args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for next := true; next; next = rows.NextResultSet() {
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			row, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range row {
				into[i] = &row[i]
			}
			if err := rows.Scan(into...); err != nil {
				return nil, err
			}
			for i, v := range row {
				if b, ok := v.([]byte); ok {
					row[i] = string(b)
				}
			}
			all = append(all, row)
		}
	}
	return all, rows.Err()
}

func (w *world) try(st sqlbatch.Statement) ([][]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if len(st.Prior) == 0 {
		return Rows(ctx, w.db, st)
	}
	tx, err := w.db.BeginTx(ctx, nil)
	require.NoError(w, err)
	rows, err := Rows(ctx, tx, st)
	require.NoError(w, tx.Commit())
	return rows, err
}

// run runs a statement. No two share a millisecond, as in a bubble they would: the times in
// the tables are milliseconds, and some statements tell before from after.
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
	tx, err := w.db.Begin()
	require.NoError(w, err)
	defer tx.Rollback()
	rows, err := Rows(context.Background(), tx, st)
	require.NoError(w, err, st.Text)
	require.NoError(w, tx.Commit())
	return rows
}

func (w *world) exec(format string, args ...any) {
	w.Helper()
	_, err := w.db.Exec(fmt.Sprintf(format, args...))
	require.NoError(w, err)
}

// define makes, changes or drops a table.
func (w *world) define(text string) {
	w.Helper()
	_, err := w.tables.Exec(text)
	require.NoError(w, err, text)
}

// dropTables drops the queue.
func (w *world) dropTables() {
	w.Helper()
	for _, st := range w.Drop() {
		_, err := Rows(context.Background(), w.tables, st)
		require.NoError(w, err, st.Text)
	}
}

// shift moves a time of some rows by d: "chanq_orders.due_at".
func (w *world) shift(column string, d time.Duration, where string) {
	w.Helper()
	table, column, _ := strings.Cut(column, ".")
	moved := fmt.Sprintf("%s + %d", column, d.Milliseconds())
	if w.dialect.Name() == "sqlserver" {
		moved = fmt.Sprintf("DATEADD(millisecond, %d, %s)", d.Milliseconds(), column)
	}
	w.exec("UPDATE %s SET %s = %s WHERE %s", table, column, moved, where)
}

// at is a time as the tables have it, in seconds since 1970.
func (w *world) at(seconds int) string {
	if w.dialect.Name() == "sqlserver" {
		const day = 24 * 60 * 60 // a count of seconds is an int
		return fmt.Sprintf("DATEADD(second, %d, DATEADD(day, %d, '19700101'))", seconds%day, seconds/day)
	}
	return fmt.Sprint(seconds * 1000)
}

// bytes is a value of a body.
func (w *world) bytes(b []byte) string {
	return fmt.Sprintf(map[string]string{"sqlserver": "0x%x", "postgres": `'\x%x'`, "sqlite": "x'%x'"}[w.dialect.Name()], b)
}

// is the condition that a row has the id of a number.
func (w *world) is(n byte) string {
	id := id(n)
	if w.dialect.Name() == "postgres" {
		return fmt.Sprintf("id = '%x'", id)
	}
	return "id = " + w.bytes(id[:])
}

func (w *world) now() int64 {
	w.Helper()
	return w.run(w.Clock())[0][0].(int64)
}

func id(n byte) [16]byte { return [16]byte{n} }

func ids(ns ...byte) (all [][16]byte) {
	for _, n := range ns {
		all = append(all, id(n))
	}
	return all
}

// numbers are the first bytes of the ids that a statement returned.
func (w *world) numbers(rows [][]any) (ns []byte) {
	w.Helper()
	for _, row := range rows {
		require.Len(w, row[0], 16)
		ns = append(ns, row[0].(string)[0])
	}
	return ns
}

// peek is the first bytes of the ids that a peek shows.
func (w *world) peek(s sqlbatch.State, n int) (ns []byte) {
	w.Helper()
	for _, row := range w.run(w.Peek(s, n, nil)) {
		ns = append(ns, row[1].(string)[0])
	}
	return ns
}

// settled are the id, fence pairs that a statement returned.
func (w *world) settled(rows [][]any) (items []sqlbatch.Item) {
	w.Helper()
	for _, row := range rows {
		items = append(items, sqlbatch.Item{ID: [16]byte([]byte(row[0].(string))), Fence: row[1].(int64)})
	}
	return items
}

// items names the leases of live messages as they are now.
func (w *world) items(ns ...byte) (items []sqlbatch.Item) {
	w.Helper()
	for _, n := range ns {
		found := w.settled(w.run(w.Look(ids(n))))
		require.Len(w, found, 1)
		items = append(items, found...)
	}
	return items
}

func (w *world) send(rows ...sqlbatch.Row) {
	w.Helper()
	require.Empty(w, w.run(w.Enqueue(rows)))
}

// sendAll sends a message of each number.
func (w *world) sendAll(ns ...byte) {
	w.Helper()
	var rows []sqlbatch.Row
	for _, n := range ns {
		rows = append(rows, sqlbatch.Row{ID: id(n)})
	}
	w.send(rows...)
}

// member is who claims.
var member = [16]byte{0xA0, 15: 0x0A}

// claimOf takes what is there, suspects too.
func claimOf(n int) sqlbatch.ClaimParams {
	return sqlbatch.ClaimParams{Rows: n, Lease: time.Minute, Member: member, Salt: 1, Suspects: true}
}

func (w *world) claim(n int) []byte {
	w.Helper()
	return w.numbers(w.run(w.Claim(claimOf(n))))
}

// leased makes these messages the only ones, and claims them.
func (w *world) leased(ns ...byte) []sqlbatch.Item {
	w.Helper()
	w.exec("DELETE FROM chanq_orders")
	w.sendAll(ns...)
	require.Len(w, w.claim(1000), len(ns))
	return w.items(ns...)
}

// lapse lets the leases of these messages run out.
func (w *world) lapse(ns ...byte) {
	w.Helper()
	require.Len(w, w.run(w.EndAfter(w.items(ns...), 0)), len(ns))
}

// bury sets messages aside one after the other, so that keys may repeat.
func (w *world) bury(rows ...sqlbatch.Row) {
	w.Helper()
	for _, row := range rows {
		w.send(row)
		require.Len(w, w.claim(1), 1)
		require.Len(w, w.run(w.Bury([]sqlbatch.BuryItem{{Item: w.items(row.ID[0])[0]}})), 1)
	}
}

// claimed is one row that a claim returned.
type claimed struct {
	ID                               byte
	Priority, Fence, Attempts        int64
	Lapses, Expired, EnqueuedAt, Due int64
	ExpiresAt, Key, Headers, Body    any
}

func (w *world) claimed(p sqlbatch.ClaimParams) map[byte]claimed {
	w.Helper()
	all := map[byte]claimed{}
	for _, r := range w.run(w.Claim(p)) {
		require.Len(w, r, 12)
		n := r[0].(string)[0]
		all[n] = claimed{n, r[1].(int64), r[2].(int64), r[3].(int64), r[4].(int64), r[5].(int64), r[6].(int64), r[7].(int64), r[8], r[9], r[10], r[11]}
	}
	return all
}

// entry is a row of Get or Peek, by column.
type entry map[string]any

func (w *world) entry(row []any) entry {
	w.Helper()
	columns := []string{"state", "id", "priority", "fence", "attempts", "enqueued_at", "due_at", "lease_until", "ended_at", "expires_at", "leased_by", "holder", "dedup_key", "last_error", "headers", "body"}
	if len(row) > len(columns) { // of an ordered queue
		columns = append(columns, "slot", "seq", "order_key")
	}
	require.Len(w, row, len(columns))
	e := entry{}
	for i, c := range columns {
		e[c] = row[i]
	}
	return e
}

func (w *world) get(n byte) entry {
	w.Helper()
	rows := w.run(w.Get(id(n)))
	require.Len(w, rows, 1)
	return w.entry(rows[0])
}

// of are the values of these columns.
func (e entry) of(columns ...string) (values []any) {
	for _, c := range columns {
		values = append(values, e[c])
	}
	return values
}

// list is values to compare with.
func list(values ...any) []any {
	for i, v := range values {
		if n, ok := v.(int); ok {
			values[i] = int64(n)
		}
	}
	return values
}
