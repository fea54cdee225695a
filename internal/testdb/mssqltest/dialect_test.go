package mssqltest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/testdb/mssqltest"
	"github.com/chanq/chanq/internal/testdb/mssqltest/engine"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

var names = sqlbatch.Names{Queue: "orders"}

// queue is chanq's own SQL against a stand-in.
type queue struct {
	sqlbatch.Queue
	*mssqltest.Server
	t testing.TB
}

func newQueue(t testing.TB, o mssqltest.Options) *queue {
	q := &queue{sqlserver.Dialect.Queue(names), mssqltest.Start(t, o), t}
	q.migrate()
	return q
}

// Clock is the server's, not the statement that asks for it.
func (q *queue) Clock() *engine.ManualClock { return q.Server.Clock() }

func (q *queue) migrate() {
	q.t.Helper()
	ctx := context.Background()
	conn, err := q.DB().Conn(ctx)
	require.NoError(q.t, err)
	defer func() { require.NoError(q.t, conn.Close()) }()
	texts := sqlserver.Dialect.Begin()
	for _, m := range sqlserver.Dialect.Migrations(names) {
		texts = append(texts, m.Statements...)
	}
	texts = append(texts, sqlserver.Dialect.Commit())
	for _, text := range texts {
		_, err := conn.ExecContext(ctx, text)
		require.NoError(q.t, err, text)
	}
	q.exec(q.Record(sqlbatch.Version))
}

func (q *queue) exec(st sqlbatch.Statement) {
	q.t.Helper()
	_, err := q.DB().ExecContext(context.Background(), st.Text, st.Args...)
	require.NoError(q.t, err)
}

// rows runs a statement and returns the rows of all its results.
func (q *queue) rows(st sqlbatch.Statement) [][]any {
	q.t.Helper()
	out, err := rowsOf(context.Background(), q.DB(), st)
	require.NoError(q.t, err)
	return out
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func rowsOf(ctx context.Context, on querier, st sqlbatch.Statement) ([][]any, error) {
	rows, err := on.QueryContext(ctx, st.Text, st.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out [][]any
	for {
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			row := make([]any, len(columns))
			to := make([]any, len(columns))
			for i := range row {
				to[i] = &row[i]
			}
			if err := rows.Scan(to...); err != nil {
				return nil, err
			}
			out = append(out, row)
		}
		if !rows.NextResultSet() {
			return out, rows.Err()
		}
	}
}

func newID() [16]byte { return uuid.Must(uuid.NewV7()) }

func makeRows(n int, priority int8) []sqlbatch.Row {
	rows := make([]sqlbatch.Row, n)
	for i := range rows {
		rows[i] = sqlbatch.Row{ID: newID(), Priority: priority, Body: []byte{byte(i)}}
	}
	return rows
}

func itemsOf(claimed [][]any) []sqlbatch.Item {
	items := make([]sqlbatch.Item, len(claimed))
	for i, row := range claimed {
		copy(items[i].ID[:], row[0].([]byte))
		items[i].Fence = row[2].(int64)
	}
	return items
}

var claimTen = sqlbatch.ClaimParams{Rows: 10, Lease: 30 * time.Second, Member: [16]byte{1}, Salt: 1, Suspects: true}

func TestMigrationsMayRunAgain(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	q.migrate()
	require.Equal(t, [][]any{{int64(sqlbatch.Version), int64(0)}}, q.rows(q.Version()))
}

func TestClaimTakesTheHighestPriorityFirstAndSkipsWhatIsLeased(t *testing.T) {
	t.Parallel()
	for _, order := range []sqlbatch.Order{sqlbatch.FIFO, sqlbatch.OrderAny} {
		q := newQueue(t, mssqltest.Options{})
		low, urgent := makeRows(3, sqlbatch.PriorityLow), makeRows(2, sqlbatch.PriorityUrgent)
		q.exec(q.Enqueue(append(low, urgent...)))
		p := claimTen
		p.Rows, p.Order = 3, order
		got := q.rows(q.Claim(p))
		require.Len(t, got, 3)
		require.Equal(t, urgent[0].ID[:], got[0][0])
		require.Equal(t, urgent[1].ID[:], got[1][0])
		require.Equal(t, low[0].ID[:], got[2][0])
		require.Equal(t, q.Clock().Now().UnixMilli()<<sqlbatch.FenceBits+1, got[0][2], "fence")
		require.Equal(t, int64(1), got[0][3], "attempts")
		require.Len(t, q.rows(q.Claim(p)), 2)
		require.Empty(t, q.rows(q.Claim(p)))
		q.Clock().Advance(30 * time.Second)
		require.Len(t, q.rows(q.Claim(p)), 3, "leases end")
	}
}

func TestAckDeletesOnceAndStaleFencesDeleteNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	q.exec(q.Enqueue(makeRows(10, 0)))
	items := itemsOf(q.rows(q.Claim(claimTen)))
	stale := items[3]
	stale.Fence--
	require.Empty(t, q.rows(q.Ack([]sqlbatch.Item{stale})))
	require.Len(t, q.rows(q.Ack(items)), 10)
	require.Empty(t, q.rows(q.Ack(items)))
}

func TestEverySettleAppliesToItsLease(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	sent := makeRows(6, 0)
	q.exec(q.Enqueue(sent))
	claimed := q.rows(q.Claim(claimTen))
	items := itemsOf(claimed)
	due := claimed[2][7].(int64)
	require.Len(t, q.rows(q.Archive(items[:1])), 1)
	require.Len(t, q.rows(q.Nack([]sqlbatch.NackItem{{Item: items[1], Delay: time.Minute, Error: "naïve 😀"}})), 1)
	require.Len(t, q.rows(q.Release([]sqlbatch.ReleaseItem{{Item: items[2], Due: due}})), 1)
	require.Len(t, q.rows(q.Bury([]sqlbatch.BuryItem{{Item: items[3], Error: "poison"}})), 1)
	require.Len(t, q.rows(q.Extend(items[4:5], time.Hour)), 1)

	get := func(i int) []any { return q.rows(q.Get(items[i].ID))[0] }
	require.Equal(t, "done", get(0)[0])
	require.Equal(t, "scheduled", get(1)[0])
	require.Equal(t, "naïve 😀", get(1)[11])
	require.Equal(t, "ready", get(2)[0])
	require.Equal(t, due, get(2)[6])
	require.Equal(t, int64(0), get(2)[4], "the attempt is refunded")
	require.Equal(t, "dead", get(3)[0])
	require.Equal(t, "poison", get(3)[11])
	require.Equal(t, "leased", get(4)[0])

	stats := q.rows(q.Stats(1000))[0]
	require.Equal(t, []any{int64(1), int64(1), int64(2), int64(1), int64(1), int64(0), int64(0)}, stats)
	for state, n := range map[sqlbatch.State]int{sqlbatch.Ready: 1, sqlbatch.Scheduled: 1, sqlbatch.Leased: 2, sqlbatch.Dead: 1, sqlbatch.Done: 1} {
		require.Len(t, q.rows(q.Peek(state, 10)), n, state)
	}
	require.Len(t, q.rows(q.Redrive(10, nil, sqlbatch.Window{})), 1)
	require.Equal(t, "ready", get(3)[0])
	require.Len(t, q.rows(q.Cancel([][16]byte{items[4].ID})), 1)
	require.Len(t, q.rows(q.Purge(sqlbatch.Ready, 10, sqlbatch.Window{})), 2)
	q.Clock().Advance(time.Hour)
	require.Len(t, q.rows(q.Trim(time.Minute, 10, 0)), 1)
}

func TestRedriveByIDMovesOnlyThose(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	q.exec(q.Enqueue(makeRows(3, 0)))
	var buries []sqlbatch.BuryItem
	for _, it := range itemsOf(q.rows(q.Claim(claimTen))) {
		buries = append(buries, sqlbatch.BuryItem{Item: it})
	}
	require.Len(t, q.rows(q.Bury(buries)), 3)
	require.Len(t, q.rows(q.Redrive(10, [][16]byte{buries[1].ID}, sqlbatch.Window{})), 1)
	require.Equal(t, "ready", q.rows(q.Get(buries[1].ID))[0][0])
	require.Equal(t, "dead", q.rows(q.Get(buries[0].ID))[0][0])
}

func TestEnqueueNewLeavesOutWhatIsThere(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	rows := makeRows(3, 0)
	rows[0].Key, rows[1].Key = "a", "b"
	require.Len(t, q.rows(q.EnqueueNew(rows)), 3)
	again := makeRows(2, 0)
	again[0].Key, again[1].Key = "a", "c"
	stored := q.rows(q.EnqueueNew(append(again, rows[2])))
	require.Len(t, stored, 1)
	require.Equal(t, again[1].ID[:], stored[0][0])
	found := q.rows(q.Find([][16]byte{rows[2].ID}, []string{"a", "nobody"}))
	require.Len(t, found, 2)
}

func TestEnqueueOfAKnownIDIsADuplicate(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	rows := makeRows(4, 0)
	q.exec(q.Enqueue(rows))
	st := q.Enqueue(rows[:1])
	_, err := q.DB().Exec(st.Text, st.Args...)
	require.Equal(t, sqlbatch.Duplicate, sqlserver.Dialect.Classify(err))
}

func TestAPausedQueueYieldsNothingAndSaysSo(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	q.exec(q.Enqueue(makeRows(2, 0)))
	require.Equal(t, int64(0), q.rows(q.NextDue())[0][0])
	q.exec(q.Pause())
	require.Empty(t, q.rows(q.Claim(claimTen)))
	require.Nil(t, q.rows(q.NextDue())[0][0])
	q.exec(q.Resume())
	require.Len(t, q.rows(q.Claim(claimTen)), 2)
}

func TestAWholeRungOfEnqueueIsStored(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	q.exec(q.Enqueue(makeRows(512, 0)))
	p := claimTen
	p.Rows = 1000
	require.Len(t, q.rows(q.Claim(p)), 512)
}
