package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chanq/chanq/internal/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/stretchr/testify/require"
)

// serverQueue is a queue of a new database, and what tests say about it.
type serverQueue struct {
	*testing.T
	db  *sql.DB
	ctx context.Context
	sqlbatch.Queue
}

// runner is a *sql.DB, *sql.Conn or *sql.Tx.
type runner interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
}

func newQueue(t *testing.T) *serverQueue {
	db := pgtest.Open(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	names := sqlbatch.Names{Queue: "orders"}
	migrate(t, db, names)
	return &serverQueue{T: t, db: db, ctx: ctx, Queue: postgres.Dialect.Queue(names)}
}

func migrate(t testing.TB, db *sql.DB, names sqlbatch.Names) {
	conn, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	texts := postgres.Dialect.Begin()
	for _, m := range postgres.Dialect.Migrations(names) {
		texts = append(texts, m.Statements...)
	}
	for _, text := range append(texts, postgres.Dialect.Commit()) {
		_, err := conn.ExecContext(context.Background(), text)
		require.NoError(t, err, text)
	}
	st := postgres.Dialect.Queue(names).Record(1)
	_, err = conn.ExecContext(context.Background(), st.Text, st.Args...)
	require.NoError(t, err)
}

// rows are the result of a statement, column by column as the driver has them.
func (q *serverQueue) rows(on runner, st sqlbatch.Statement) [][]any {
	q.Helper()
	result, err := q.tryRows(on, st)
	require.NoError(q, err, st.Text)
	return result
}

func (q *serverQueue) tryRows(on runner, st sqlbatch.Statement) (result [][]any, err error) {
	rows, err := on.QueryContext(q.ctx, st.Text, st.Args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		result = append(result, row)
	}
	return result, rows.Err()
}

// ids are the first bytes of the ids that a statement returns first.
func (q *serverQueue) ids(on runner, st sqlbatch.Statement) []byte {
	q.Helper()
	var ids []byte
	for _, row := range q.rows(on, st) {
		id := row[0].([]byte)
		require.Len(q, id, 16)
		ids = append(ids, id[0])
	}
	return ids
}

func id(n byte) [16]byte { return [16]byte{n} }

// member is who claims.
var member = [16]byte{0xA0, 15: 0x0A}

func claimOf(n int) sqlbatch.ClaimParams {
	return sqlbatch.ClaimParams{Rows: n, Lease: time.Minute, Member: member, Salt: 1, Suspects: true}
}

// item names the lease of a live message as it is now.
func (q *serverQueue) item(n byte) sqlbatch.Item {
	q.Helper()
	item := sqlbatch.Item{ID: id(n)}
	require.NoError(q, q.db.QueryRow(`SELECT fence FROM chanq_orders WHERE id = $1`, fmt.Sprintf("%x", item.ID)).Scan(&item.Fence))
	return item
}

func (q *serverQueue) items(ns ...byte) []sqlbatch.Item {
	q.Helper()
	var items []sqlbatch.Item
	for _, n := range ns {
		items = append(items, q.item(n))
	}
	return items
}

func (q *serverQueue) enqueue(rows ...sqlbatch.Row) {
	q.Helper()
	require.Empty(q, q.rows(q.db, q.Queue.Enqueue(rows)))
}

func (q *serverQueue) claim(on runner, n int) []byte {
	q.Helper()
	return q.ids(on, q.Claim(claimOf(n)))
}

func (q *serverQueue) exec(text string, args ...any) {
	q.Helper()
	_, err := q.db.ExecContext(q.ctx, text, args...)
	require.NoError(q, err)
}

func (q *serverQueue) begin() *sql.Tx {
	q.Helper()
	tx, err := q.db.BeginTx(q.ctx, nil)
	require.NoError(q, err)
	q.Cleanup(func() { _ = tx.Rollback() }) // fails where the test has ended it
	return tx
}

// settled are the id, fence pairs that a statement returns.
func (q *serverQueue) settled(on runner, st sqlbatch.Statement) []sqlbatch.Item {
	q.Helper()
	var items []sqlbatch.Item
	for _, row := range q.rows(on, st) {
		items = append(items, sqlbatch.Item{ID: [16]byte(row[0].([]byte)), Fence: row[1].(int64)})
	}
	return items
}

func (q *serverQueue) get(n byte) map[string]any {
	q.Helper()
	rows := q.rows(q.db, q.Get(id(n)))
	require.Len(q, rows, 1)
	columns := []string{"state", "id", "priority", "fence", "attempts", "enqueued_at", "due_at", "expires_at", "leased_by", "holder", "dedup_key", "last_error", "headers", "body"}
	require.Len(q, rows[0], len(columns))
	entry := map[string]any{}
	for i, c := range columns {
		entry[c] = rows[0][i]
	}
	for _, text := range []string{"holder", "dedup_key", "last_error"} {
		if entry[text] != nil {
			entry[text] = string(entry[text].([]byte))
		}
	}
	return entry
}

func TestRunsEveryStatement(t *testing.T) {
	q := newQueue(t)
	for name, st := range suite.Calls(q.Queue, "a") {
		tx := q.begin()
		q.rows(tx, st)
		require.NoError(t, tx.Rollback(), name)
	}
}

func TestQuotesEveryName(t *testing.T) {
	db := pgtest.Open(t)
	schema := `a "b" 'c' \\ $chanq$ $$ {live}`
	_, err := db.Exec(`CREATE SCHEMA "a ""b"" 'c' \\ $chanq$ $$ {live}"`)
	require.NoError(t, err)
	names := sqlbatch.Names{Schema: schema, Queue: strings.Repeat("select", 10)}
	migrate(t, db, names)
	migrate(t, db, names)
	q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(names)}
	for name, st := range suite.Calls(q.Queue, "a") {
		tx := q.begin()
		q.rows(tx, st)
		require.NoError(t, tx.Rollback(), name)
	}
}

// A DBA's own choice of storage outlives the next migration.
func TestMigratesWithoutChangingWhatIsThere(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)})
	q.exec(`ALTER TABLE chanq_orders SET (fillfactor = 90), ALTER COLUMN body SET STORAGE EXTENDED`)
	migrate(t, q.db, sqlbatch.Names{Queue: "orders"})
	var kept bool
	require.NoError(t, q.db.QueryRow(`SELECT 'fillfactor=90' = ANY (c.reloptions) AND a.attstorage = 'x'
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'body' WHERE c.oid = 'chanq_orders'::regclass`).Scan(&kept))
	require.True(t, kept)
	require.Equal(t, []byte{1}, q.claim(q.db, 1))
}

func TestStoresWhatItIsGiven(t *testing.T) {
	q := newQueue(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	q.enqueue(
		sqlbatch.Row{ID: id(1), Body: []byte{}},
		sqlbatch.Row{ID: id(2), Priority: -1, Headers: all, Body: all},
		sqlbatch.Row{ID: id(3), Priority: 2, Delay: time.Hour, Key: `"\{},é`, Body: []byte("b")},
		sqlbatch.Row{ID: id(4), Key: "k", Headers: []byte("h"), Body: []byte("last")},
	)

	first := q.get(1)
	require.Equal(t, "ready", first["state"])
	require.Nil(t, first["headers"])
	require.Equal(t, []byte{}, first["body"])
	require.Equal(t, first["enqueued_at"], first["due_at"])
	second := q.get(2)
	require.Equal(t, []any{int64(-1), all, all, nil}, []any{second["priority"], second["headers"], second["body"], second["dedup_key"]})
	third := q.get(3)
	require.Equal(t, []any{"scheduled", int64(2), `"\{},é`}, []any{third["state"], third["priority"], third["dedup_key"]})
	require.Equal(t, third["enqueued_at"].(int64)+time.Hour.Milliseconds(), third["due_at"])
	fourth := q.get(4)
	require.Equal(t, []any{"k", []byte("h"), []byte("last")}, []any{fourth["dedup_key"], fourth["headers"], fourth["body"]})
}

func TestEnqueueIsAllOrNothing(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(2)})
	_, err := q.tryRows(q.db, q.Queue.Enqueue([]sqlbatch.Row{{ID: id(1)}, {ID: id(2)}}))
	require.Equal(t, sqlbatch.Duplicate, postgres.Dialect.Classify(err))
	require.Equal(t, []byte{2}, q.claim(q.db, 10))
}

func TestEnqueueNewLeavesOutWhatIsThere(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2), Key: `a"b`})

	rows := []sqlbatch.Row{{ID: id(3), Key: "z"}, {ID: id(1)}, {ID: id(4), Key: `a"b`}, {ID: id(5)}}
	require.ElementsMatch(t, []byte{3, 5}, q.ids(q.db, q.EnqueueNew(rows)))

	q.exec(`UPDATE chanq_orders SET fence = 5`)
	var found [][]any
	for _, row := range q.rows(q.db, q.Find([][16]byte{id(1), id(9)}, []string{`a"b`, "none"})) {
		found = append(found, []any{row[0].([]byte)[0], row[1], row[2]})
	}
	require.ElementsMatch(t, [][]any{{byte(1), nil, int64(5)}, {byte(2), []byte(`a"b`), int64(0)}}, found)
}

func TestClaimTakesLanesFromTheHighestByDueTime(t *testing.T) {
	q := newQueue(t)
	q.enqueue(
		sqlbatch.Row{ID: id(1), Priority: -1}, sqlbatch.Row{ID: id(2), Priority: 0}, sqlbatch.Row{ID: id(3), Priority: 1},
		sqlbatch.Row{ID: id(4), Priority: 2}, sqlbatch.Row{ID: id(5), Priority: 2}, sqlbatch.Row{ID: id(6), Priority: 2, Delay: time.Hour},
		sqlbatch.Row{ID: id(7), Priority: 0, Key: "k", Headers: []byte("h"), Body: []byte("b")},
	)
	q.exec(`UPDATE chanq_orders SET visible_at = visible_at - 1000 WHERE id IN ($1, $2)`, fmt.Sprintf("%x", id(5)), fmt.Sprintf("%x", id(7)))

	require.Equal(t, []byte{5}, q.claim(q.db, 1))
	require.ElementsMatch(t, []byte{4, 3}, q.claim(q.db, 2))
	due := q.get(7)["due_at"]
	rows := q.rows(q.db, q.Claim(claimOf(1)))
	require.Len(t, rows, 1)
	id := id(7)
	require.Equal(t, []any{id[:], int64(0), q.item(7).Fence, int64(1), int64(0), int64(0), q.get(7)["enqueued_at"], due, nil, []byte("k"), []byte("h"), []byte("b")}, rows[0])
	require.Equal(t, member[:], q.get(7)["leased_by"])
	require.Equal(t, "leased", q.get(7)["state"])
	require.ElementsMatch(t, []byte{2, 1}, q.claim(q.db, 1000))
	require.Empty(t, q.claim(q.db, 1000))
}

func TestPausedQueueYieldsNothing(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)})
	q.rows(q.db, q.Pause())
	require.Empty(t, q.claim(q.db, 10))
	require.Equal(t, [][]any{{nil}}, q.rows(q.db, q.NextDue()))
	require.Equal(t, [][]any{{int64(1), int64(1)}}, q.rows(q.db, q.Version()))
	q.rows(q.db, q.Resume())
	require.Equal(t, []byte{1}, q.claim(q.db, 10))
}

func TestNextDueIsTheEarliestOfAllLanes(t *testing.T) {
	q := newQueue(t)
	require.Equal(t, [][]any{{nil}}, q.rows(q.db, q.NextDue()))
	q.enqueue(sqlbatch.Row{ID: id(1), Priority: 2, Delay: 2 * time.Hour}, sqlbatch.Row{ID: id(2), Priority: -1, Delay: time.Hour})
	in := q.rows(q.db, q.NextDue())[0][0].(int64)
	require.LessOrEqual(t, in, time.Hour.Milliseconds())
	require.Greater(t, in, time.Hour.Milliseconds()-60_000)
	q.enqueue(sqlbatch.Row{ID: id(3)})
	require.LessOrEqual(t, q.rows(q.db, q.NextDue())[0][0], int64(0))
}

func TestSettlesApplyOnlyToTheirFence(t *testing.T) {
	q := newQueue(t)
	for form, q2 := range map[string]sqlbatch.Queue{"": q, "in a transaction": q.InTx(), "skipping": q.SkipLocked()} {
		for name := range settles(q) {
			items := q.leased(1, 2, 3)
			mine, stale, gone := items[0], items[1], sqlbatch.Item{ID: id(9), Fence: items[0].Fence}
			stale.Fence--
			st := settles(q2, mine, stale, gone)[name]
			require.Equal(t, []sqlbatch.Item{mine}, q.settled(q.db, st), "%s %s", name, form)
			if name != "extend" && name != "end after" {
				require.Empty(t, q.settled(q.db, st), "%s %s again", name, form)
			}
			require.Equal(t, items[1:], q.items(2, 3), "%s %s", name, form)
		}
	}
}

// The leases of one claim have one fence; those of several are far apart.
func TestSettlesLeasesOfManyClaimsAtOnce(t *testing.T) {
	q := newQueue(t)
	for name := range settles(q) {
		q.leased(1, 2, 3)
		q.exec(`UPDATE chanq_orders SET fence = CASE get_byte(uuid_send(id), 0) WHEN 1 THEN 7 WHEN 2 THEN 9223372036854775806 ELSE 2199023255552 END`)
		items := q.items(1, 2, 3)
		require.Equal(t, items, q.settled(q.db, settles(q, items...)[name]), name)
	}
}

func TestNackSchedulesAndKeepsTheAttempt(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2)})
	q.claim(q.db, 10)
	fence := q.item(1).Fence
	q.settled(q.db, q.Nack([]sqlbatch.NackItem{{Item: q.item(1), Delay: time.Hour, Error: "é \x00 \xff"}, {Item: q.item(2)}}))
	got := q.get(1)
	require.Equal(t, []any{"scheduled", fence + 1, int64(1), nil, "é � �"}, []any{got["state"], got["fence"], got["attempts"], got["leased_by"], got["last_error"]})
	require.Equal(t, []byte{2}, q.claim(q.db, 10))
	q.settled(q.db, q.Nack([]sqlbatch.NackItem{{Item: q.item(2), Error: "first"}}))
	q.claim(q.db, 10)
	q.settled(q.db, q.Nack([]sqlbatch.NackItem{{Item: q.item(2)}}))
	require.Equal(t, "first", q.get(2)["last_error"], "no error keeps the one before")
}

func TestReleaseGivesBackPlaceAndAttempt(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)})
	due := q.get(1)["due_at"].(int64)
	q.claim(q.db, 10)
	fence := q.item(1).Fence
	q.settled(q.db, q.Release([]sqlbatch.ReleaseItem{{Item: q.item(1), Due: due}}))
	got := q.get(1)
	require.Equal(t, []any{"ready", fence + 1, int64(0), due, nil}, []any{got["state"], got["fence"], got["attempts"], got["due_at"], got["leased_by"]})
}

func TestArchiveAndBuryMoveTheWholeMessage(t *testing.T) {
	q := newQueue(t)
	row := sqlbatch.Row{ID: id(1), Priority: 1, Key: "k", Headers: []byte("h"), Body: []byte("b")}
	want := map[string]any{"priority": int64(1), "attempts": int64(1), "dedup_key": "k", "headers": []byte("h"), "body": []byte("b"), "leased_by": nil}
	moved := func(state string, fence int64, lastError any) {
		t.Helper()
		got := q.get(1)
		require.Equal(t, state, got["state"])
		require.Equal(t, fence, got["fence"])
		require.Equal(t, lastError, got["last_error"])
		require.GreaterOrEqual(t, got["due_at"], got["enqueued_at"])
		for column, value := range want {
			require.Equal(t, value, got[column], column)
		}
	}
	for range 2 { // the second time an older copy is there
		q.enqueue(row)
		q.claim(q.db, 1)
		lease := q.item(1)
		q.settled(q.db, q.Archive([]sqlbatch.Item{lease}))
		moved("done", lease.Fence, nil)
	}
	q.exec(`TRUNCATE chanq_orders_done`)
	for _, text := range []string{"first", "second"} {
		q.enqueue(row)
		q.claim(q.db, 1)
		lease := q.item(1)
		q.settled(q.db, q.Bury([]sqlbatch.BuryItem{{Item: lease, Error: text}}))
		moved("dead", lease.Fence+1, text)
	}
}

// now() would be the start of the transaction: a delay would be over before it
// began.
func TestADelayCountsFromTheSendNotFromTheTransaction(t *testing.T) {
	q := newQueue(t)
	tx := q.begin()
	_, err := tx.Exec("SELECT pg_sleep(0.3)")
	require.NoError(t, err)
	var before int64
	require.NoError(t, tx.QueryRow("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").Scan(&before))
	require.Empty(t, q.rows(tx, q.InTx().Enqueue([]sqlbatch.Row{{ID: id(1), Delay: 250 * time.Millisecond}})))
	require.NoError(t, tx.Commit())
	require.GreaterOrEqual(t, q.get(1)["due_at"], before+250)
}
