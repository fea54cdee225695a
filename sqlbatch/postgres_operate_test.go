package sqlbatch_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/pgtest"
	"github.com/chanq/chanq/sqlbatch"
)

// one message in each state: 1 ready, 2 scheduled, 3 leased, 4 dead, 5 done.
func (q *pgQueue) oneOfEach() {
	q.Helper()
	q.enqueue(sqlbatch.Row{ID: pgID(3)}, sqlbatch.Row{ID: pgID(4)}, sqlbatch.Row{ID: pgID(5)})
	require.Len(q, q.claim(q.db, 3), 3)
	require.Len(q, q.settled(q.db, q.Bury([]sqlbatch.BuryItem{{Item: q.item(4)}})), 1)
	require.Len(q, q.settled(q.db, q.Archive(q.items(5))), 1)
	q.enqueue(sqlbatch.Row{ID: pgID(1)}, sqlbatch.Row{ID: pgID(2), Priority: 2, Delay: time.Hour})
}

func TestPostgresShowsEachState(t *testing.T) {
	q := newPGQueue(t)
	q.oneOfEach()
	for i, state := range postgresStates {
		rows := q.rows(q.db, q.Peek(state, 10))
		require.Len(t, rows, 1, state)
		require.Equal(t, string(state), rows[0][0])
		require.Equal(t, byte(i+1), rows[0][1].([]byte)[0])
		require.Equal(t, rows, q.rows(q.db, q.Get(pgID(byte(i+1)))), "Get has the columns of Peek")
	}
	require.Empty(t, q.rows(q.db, q.Get(pgID(9))))
}

func TestPostgresPeeksInTheOrderOfClaims(t *testing.T) {
	q := newPGQueue(t)
	q.enqueue(sqlbatch.Row{ID: pgID(3)}, sqlbatch.Row{ID: pgID(1)}, sqlbatch.Row{ID: pgID(2), Priority: 1}, sqlbatch.Row{ID: pgID(4), Priority: -1})
	var order []byte
	for _, row := range q.rows(q.db, q.Peek(sqlbatch.Ready, 3)) {
		order = append(order, row[1].([]byte)[0])
	}
	require.Equal(t, []byte{2, 1, 3}, order)
}

func TestPostgresStatsStopAtTheLimit(t *testing.T) {
	q := newPGQueue(t)
	require.Equal(t, [][]any{{int64(0), int64(0), int64(0), int64(0), int64(0), nil, int64(0)}}, q.rows(q.db, q.Stats(10)))
	q.oneOfEach()
	counts := func(limit int) []any { return q.rows(q.db, q.Stats(limit))[0] }
	got := counts(10)
	require.Equal(t, []any{int64(1), int64(1), int64(1), int64(1), int64(1)}, got[:5])
	require.GreaterOrEqual(t, got[5], int64(0), "ms since the oldest ready message was due")
	q.exec(`UPDATE chanq_orders SET visible_at = visible_at - 5000 WHERE leased_by IS NULL AND priority = 0`)
	require.GreaterOrEqual(t, counts(10)[5], int64(5000))

	for i := byte(10); i < 30; i++ {
		q.enqueue(sqlbatch.Row{ID: pgID(i), Priority: int8(i%4) - 1}, sqlbatch.Row{ID: pgID(i + 100), Priority: int8(i%4) - 1, Delay: time.Hour})
	}
	require.Equal(t, []any{int64(7), int64(7), int64(1), int64(1), int64(1)}, counts(7)[:5])
}

func TestPostgresPurgesOneStateOnly(t *testing.T) {
	for i, state := range postgresStates {
		q := newPGQueue(t)
		q.oneOfEach()
		require.Equal(t, []byte{byte(i + 1)}, q.ids(q.db, q.Purge(state, 10, sqlbatch.Window{})), state)
		require.Empty(t, q.ids(q.db, q.Purge(state, 10, sqlbatch.Window{})))
		for j := range postgresStates {
			want := 1
			if j == i {
				want = 0
			}
			require.Len(t, q.rows(q.db, q.Get(pgID(byte(j+1)))), want)
		}
	}
}

func TestPostgresPurgeDeletesNoMoreThanAsked(t *testing.T) {
	q := newPGQueue(t)
	q.enqueue(sqlbatch.Row{ID: pgID(1)}, sqlbatch.Row{ID: pgID(2), Priority: 1}, sqlbatch.Row{ID: pgID(3), Priority: -1})
	require.Len(t, q.ids(q.db, q.Purge(sqlbatch.Ready, 2, sqlbatch.Window{})), 2)
	require.Equal(t, []byte{3}, q.claim(q.db, 10))
}

func TestPostgresCancelDeletesWhatIsLive(t *testing.T) {
	q := newPGQueue(t)
	q.oneOfEach()
	require.ElementsMatch(t, []byte{1, 2, 3}, q.ids(q.db, q.Cancel([][16]byte{pgID(5), pgID(3), pgID(4), pgID(2), pgID(1)})))
	require.Empty(t, q.settled(q.db, q.Ack(q.items(3))))
}

func TestPostgresTrimDeletesWhatEndedLongAgo(t *testing.T) {
	q := newPGQueue(t)
	q.oneOfEach()
	require.Empty(t, q.ids(q.db, q.Trim(time.Hour, 10, 0)))
	q.exec(`UPDATE chanq_orders_done SET ended_at = ended_at - 3600001`)
	require.Equal(t, []byte{5}, q.ids(q.db, q.Trim(time.Hour, 10, 0)))
}

func TestPostgresRedriveMakesADeadMessageNew(t *testing.T) {
	q := newPGQueue(t)
	q.oneOfEach()
	require.Equal(t, []byte{4}, q.ids(q.db, q.Redrive(10, nil, sqlbatch.Window{})))
	got := q.get(4)
	require.Equal(t, []any{"ready", int64(3), int64(0)}, []any{got["state"], got["fence"], got["attempts"]})
	require.Empty(t, q.ids(q.db, q.Redrive(10, nil, sqlbatch.Window{})))
}

func TestPostgresRedriveTakesTheOldestFirst(t *testing.T) {
	q := newPGQueue(t)
	q.bury(sqlbatch.Row{ID: pgID(1)}, sqlbatch.Row{ID: pgID(2)}, sqlbatch.Row{ID: pgID(3)})
	q.exec(`UPDATE chanq_orders_dead SET ended_at = 100 - get_byte(uuid_send(id), 0)`)
	require.Equal(t, []byte{3}, q.ids(q.db, q.Redrive(1, nil, sqlbatch.Window{})))
	require.Equal(t, []byte{1}, q.ids(q.db, q.Redrive(0, [][16]byte{pgID(3), pgID(1)}, sqlbatch.Window{})))
	require.Equal(t, []byte{2}, q.ids(q.db, q.Redrive(1, nil, sqlbatch.Window{})))
}

// bury sets messages aside one after the other, so that keys may repeat.
func (q *pgQueue) bury(rows ...sqlbatch.Row) {
	q.Helper()
	for _, row := range rows {
		q.enqueue(row)
		require.Len(q, q.claim(q.db, 1), 1)
		require.Len(q, q.settled(q.db, q.Bury([]sqlbatch.BuryItem{{Item: q.item(row.ID[0])}})), 1)
	}
}

func TestPostgresRedriveLeavesWhatCannotLive(t *testing.T) {
	all := [][16]byte{pgID(1), pgID(2), pgID(3), pgID(4), pgID(5)}
	for name, redrive := range map[string]func(q *pgQueue) sqlbatch.Statement{
		"oldest": func(q *pgQueue) sqlbatch.Statement { return q.Redrive(10, nil, sqlbatch.Window{}) },
		"listed": func(q *pgQueue) sqlbatch.Statement { return q.Redrive(0, all, sqlbatch.Window{}) },
	} {
		q := newPGQueue(t)
		q.bury(sqlbatch.Row{ID: pgID(1), Key: "live"}, sqlbatch.Row{ID: pgID(3), Key: "twice"}, sqlbatch.Row{ID: pgID(2), Key: "twice"},
			sqlbatch.Row{ID: pgID(4)}, sqlbatch.Row{ID: pgID(5), Key: "free"})
		q.enqueue(sqlbatch.Row{ID: pgID(9), Key: "live"}, sqlbatch.Row{ID: pgID(4)})
		require.ElementsMatch(t, []byte{2, 5}, q.ids(q.db, redrive(q)), name)
		require.Empty(t, q.ids(q.db, redrive(q)), name)
		require.Len(t, q.rows(q.db, q.Peek(sqlbatch.Dead, 10)), 3)
	}
}

// What a pool of transactions in between needs: statements that are prepared
// by no name, or not at all.
func TestPostgresRunsInEveryModeOfPgx(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			config := pgtest.Config(t)
			config.DefaultQueryExecMode = mode
			db := stdlib.OpenDB(*config)
			t.Cleanup(func() { db.Close() })
			names := sqlbatch.Names{Queue: "orders"}
			migratePG(t, db, names)
			q := &pgQueue{T: t, db: db, ctx: t.Context(), Queue: sqlbatch.Postgres.Queue(names)}

			q.enqueue(sqlbatch.Row{ID: pgID(1), Body: []byte{0, 1, 255, '\''}, Headers: []byte{0}, Key: `a'b"`}, sqlbatch.Row{ID: pgID(2)})
			require.Len(t, q.rows(db, q.Find([][16]byte{pgID(2)}, []string{`a'b"`})), 2)
			require.Len(t, q.claim(db, 10), 2)
			require.Equal(t, []byte{0, 1, 255, '\''}, q.get(1)["body"])
			require.Len(t, q.settled(db, q.Nack([]sqlbatch.NackItem{{Item: q.item(1), Error: "it's"}})), 1)
			require.Equal(t, "it's", q.get(1)["last_error"])
			require.Len(t, q.settled(db, q.Ack(q.items(2))), 1)
			require.Equal(t, []byte{1}, q.ids(db, q.Cancel([][16]byte{pgID(1)})))
			for name, st := range postgresCalls(q.Queue) {
				tx := q.begin()
				q.rows(tx, st)
				require.NoError(t, tx.Rollback(), name)
			}
		})
	}
}
