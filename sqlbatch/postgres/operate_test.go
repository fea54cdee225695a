package postgres_test

import (
	"testing"
	"time"

	"github.com/chanq/chanq/internal/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// one message in each state: 1 ready, 2 scheduled, 3 leased, 4 dead, 5 done.
func (q *serverQueue) oneOfEach() {
	q.Helper()
	q.enqueue(sqlbatch.Row{ID: id(3)}, sqlbatch.Row{ID: id(4)}, sqlbatch.Row{ID: id(5)})
	require.Len(q, q.claim(q.db, 3), 3)
	require.Len(q, q.settled(q.db, q.Bury([]sqlbatch.BuryItem{{Item: q.item(4)}})), 1)
	require.Len(q, q.settled(q.db, q.Archive(q.items(5))), 1)
	q.enqueue(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2), Priority: 2, Delay: time.Hour})
}

func TestShowsEachState(t *testing.T) {
	q := newQueue(t)
	q.oneOfEach()
	for i, state := range suite.States {
		rows := q.rows(q.db, q.Peek(state, 10))
		require.Len(t, rows, 1, state)
		require.Equal(t, string(state), rows[0][0])
		require.Equal(t, byte(i+1), rows[0][1].([]byte)[0])
		require.Equal(t, rows, q.rows(q.db, q.Get(id(byte(i+1)))), "Get has the columns of Peek")
	}
	require.Empty(t, q.rows(q.db, q.Get(id(9))))
}

func TestPeeksInTheOrderOfClaims(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(3)}, sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2), Priority: 1}, sqlbatch.Row{ID: id(4), Priority: -1})
	var order []byte
	for _, row := range q.rows(q.db, q.Peek(sqlbatch.Ready, 3)) {
		order = append(order, row[1].([]byte)[0])
	}
	require.Equal(t, []byte{2, 1, 3}, order)
}

func TestStatsStopAtTheLimit(t *testing.T) {
	q := newQueue(t)
	require.Equal(t, [][]any{{int64(0), int64(0), int64(0), int64(0), int64(0), nil, int64(0)}}, q.rows(q.db, q.Stats(10)))
	q.oneOfEach()
	counts := func(limit int) []any { return q.rows(q.db, q.Stats(limit))[0] }
	got := counts(10)
	require.Equal(t, []any{int64(1), int64(1), int64(1), int64(1), int64(1)}, got[:5])
	require.GreaterOrEqual(t, got[5], int64(0), "ms since the oldest ready message was due")
	q.exec(`UPDATE chanq_orders SET visible_at = visible_at - 5000 WHERE leased_by IS NULL AND priority = 0`)
	require.GreaterOrEqual(t, counts(10)[5], int64(5000))

	for i := byte(10); i < 30; i++ {
		q.enqueue(sqlbatch.Row{ID: id(i), Priority: int8(i%4) - 1}, sqlbatch.Row{ID: id(i + 100), Priority: int8(i%4) - 1, Delay: time.Hour})
	}
	require.Equal(t, []any{int64(7), int64(7), int64(1), int64(1), int64(1)}, counts(7)[:5])
}

// many puts live messages of a state in, in all lanes, the first due in so many ms.
func (q *serverQueue) many(n int, state sqlbatch.State, in int) {
	q.Helper()
	holder := map[bool]string{true: "gen_random_uuid()", false: "NULL"}[state == sqlbatch.Leased]
	q.exec(`INSERT INTO chanq_orders (priority, visible_at, leased_by, body) SELECT i % 4 - 1, $2::bigint + i, `+holder+`, '' FROM generate_series(1, $1::int) AS i`, n, q.now()+int64(in))
}

// read is how many entries of the claim indexes and the primary key a statement
// reads.
func (q *serverQueue) read(st sqlbatch.Statement) (n int64) {
	q.Helper()
	tx := q.begin()
	defer tx.Rollback()
	count := func() (n int64) {
		require.NoError(q, tx.QueryRow(`SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid = 'chanq_orders'::regclass`).Scan(&n))
		return n
	}
	before := count()
	q.rows(tx, st)
	return count() - before
}

func TestCountsEachStateUpToTheLimitWhateverTheOthersHold(t *testing.T) {
	const limit, hour = 100, 3_600_000
	states := []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased}
	place := map[sqlbatch.State]int{sqlbatch.Ready: -hour, sqlbatch.Scheduled: 2 * hour, sqlbatch.Leased: 2 * hour}
	for i, few := range states {
		q := newQueue(t)
		q.many(10, few, place[few])
		var first int64
		for round := range 2 {
			for j, state := range states {
				if j != i {
					q.many(2000+4000*round, state, place[state]/2)
				}
			}
			want := []any{int64(limit), int64(limit), int64(limit)}
			want[i] = int64(10)
			require.Equal(t, want, q.rows(q.db, q.Stats(limit))[0][:3], few)
			require.Len(t, q.rows(q.db, q.Peek(few, limit)), 10)

			// A lane of the few may be read to where the many begin, and a count of ready ones
			// reads those that are and that were leased.
			read := q.read(q.Stats(limit)) + q.read(q.Peek(few, 10))
			require.LessOrEqual(t, read, int64(4*limit+8+40), few)
			if round == 0 {
				first = read
			}
			require.Equal(t, first, read, "%s: what others hold is not read", few)
		}
	}
}

func TestPurgesOneStateOnly(t *testing.T) {
	for i, state := range suite.States {
		q := newQueue(t)
		q.oneOfEach()
		require.Equal(t, []byte{byte(i + 1)}, q.ids(q.db, q.Purge(state, 10, sqlbatch.Window{})), state)
		require.Empty(t, q.ids(q.db, q.Purge(state, 10, sqlbatch.Window{})))
		for j := range suite.States {
			want := 1
			if j == i {
				want = 0
			}
			require.Len(t, q.rows(q.db, q.Get(id(byte(j+1)))), want)
		}
	}
}

func TestPurgeDeletesNoMoreThanAsked(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2), Priority: 1}, sqlbatch.Row{ID: id(3), Priority: -1})
	require.Len(t, q.ids(q.db, q.Purge(sqlbatch.Ready, 2, sqlbatch.Window{})), 2)
	require.Equal(t, []byte{3}, q.claim(q.db, 10))
}

func TestAPurgeKnowsTheMillisecondOfAClaimByItsFence(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2)})
	require.Len(t, q.claim(q.db, 2), 2)
	const before = 1 << 40
	fence := func(n byte, f int64) {
		id := id(n)
		_, err := q.db.Exec(`UPDATE chanq_orders SET fence = $1 WHERE uuid_send(id) = $2`, f, id[:])
		require.NoError(t, err)
	}
	fence(1, (before-1)<<sqlbatch.FenceBits+1<<sqlbatch.FenceBits) // the greatest of the millisecond before
	fence(2, before<<sqlbatch.FenceBits+1)                         // the least of this one
	require.Equal(t, []byte{1}, q.ids(q.db, q.Purge(sqlbatch.Leased, 10, sqlbatch.Window{Before: before})))
}

// What comes to its place after a purge began stays.
func TestPurgesWhatWasThereBefore(t *testing.T) {
	for _, state := range suite.States {
		q := newQueue(t)
		q.oneOfEach()
		before := q.now() + 1
		age := `UPDATE chanq_orders SET visible_at = visible_at - 5000, enqueued_at = enqueued_at - 5000, fence = greatest(fence - (5000::bigint << 20), 0)`
		q.exec(age)
		q.exec(`UPDATE chanq_orders_dead SET ended_at = ended_at - 5000`)
		q.exec(`UPDATE chanq_orders_done SET ended_at = ended_at - 5000`)
		require.Empty(t, q.ids(q.db, q.Purge(state, 10, sqlbatch.Window{Before: before - 15_000})), state)
		rows := q.rows(q.db, q.Purge(state, 10, sqlbatch.Window{Before: before - 4000}))
		require.Len(t, rows, 1, state)
		if state == sqlbatch.Dead || state == sqlbatch.Done {
			require.InDelta(t, before-5000, rows[0][1], 4000, "when it ended")
		} else {
			require.EqualValues(t, 0, rows[0][1], state)
		}
	}
}

// A step begins where the one before it ended, and not at the entries of what that one
// has deleted.
func TestStepsBeginWhereTheLastOneEnded(t *testing.T) {
	q := newQueue(t)
	steps := map[string]func(n int, w sqlbatch.Window) sqlbatch.Statement{
		"purge":   func(n int, w sqlbatch.Window) sqlbatch.Statement { return q.Purge(sqlbatch.Dead, n, w) },
		"redrive": func(n int, w sqlbatch.Window) sqlbatch.Statement { return q.Redrive(n, nil, w) },
		"trim": func(n int, w sqlbatch.Window) sqlbatch.Statement {
			return q.Trim(time.Duration(q.now()-w.Before)*time.Millisecond, n, w.After)
		},
	}
	for name, step := range steps {
		q.exec(`TRUNCATE chanq_orders, chanq_orders_dead, chanq_orders_done`)
		q.bury(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2)}, sqlbatch.Row{ID: id(3)}, sqlbatch.Row{ID: id(4)})
		q.exec(`UPDATE chanq_orders_dead SET ended_at = 1000 * get_byte(uuid_send(id), 0)`)
		if name == "trim" {
			q.exec(`INSERT INTO chanq_orders_done SELECT * FROM chanq_orders_dead`)
		}
		w := sqlbatch.Window{After: 2000, Before: 4000}
		if name == "trim" {
			w.Before = 3500 // of a clock that goes on
		}
		rows := q.rows(q.db, step(1, w))
		require.Len(t, rows, 1, name)
		require.Equal(t, []any{byte(2), int64(2000)}, []any{rows[0][0].([]byte)[0], rows[0][1]}, name)
		require.Equal(t, []byte{3}, q.ids(q.db, step(10, w)), name)
		require.Empty(t, q.ids(q.db, step(10, w)), name)
	}
}

// Of two with one key the smaller id goes first, but not one that this redrive leaves.
func TestARedriveIsNotHeldUpByAKeyThatDiedAfterItBegan(t *testing.T) {
	q := newQueue(t)
	q.bury(sqlbatch.Row{ID: id(2), Key: "k"}, sqlbatch.Row{ID: id(1), Key: "k"})
	q.exec(`UPDATE chanq_orders_dead SET ended_at = 1000 * (3 - get_byte(uuid_send(id), 0))`)
	require.Equal(t, []byte{2}, q.ids(q.db, q.Redrive(10, nil, sqlbatch.Window{Before: 2000})))
}

func TestCancelDeletesWhatIsLive(t *testing.T) {
	q := newQueue(t)
	q.oneOfEach()
	lease := q.items(3)
	require.ElementsMatch(t, []byte{1, 2, 3}, q.ids(q.db, q.Cancel([][16]byte{id(5), id(3), id(4), id(2), id(1)})))
	require.Empty(t, q.settled(q.db, q.Ack(lease)))
}

func TestTrimDeletesWhatEndedLongAgo(t *testing.T) {
	q := newQueue(t)
	q.oneOfEach()
	require.Empty(t, q.ids(q.db, q.Trim(time.Hour, 10, 0)))
	q.exec(`UPDATE chanq_orders_done SET ended_at = ended_at - 3600001`)
	require.Equal(t, []byte{5}, q.ids(q.db, q.Trim(time.Hour, 10, 0)))
}

func TestRedriveMakesADeadMessageNew(t *testing.T) {
	q := newQueue(t)
	q.oneOfEach()
	fence := q.get(4)["fence"].(int64)
	require.Equal(t, []byte{4}, q.ids(q.db, q.Redrive(10, nil, sqlbatch.Window{})))
	got := q.get(4)
	require.Equal(t, []any{"ready", fence + 1, int64(0)}, []any{got["state"], got["fence"], got["attempts"]})
	require.Empty(t, q.ids(q.db, q.Redrive(10, nil, sqlbatch.Window{})))
}

func TestRedriveTakesTheOldestFirst(t *testing.T) {
	q := newQueue(t)
	q.bury(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2)}, sqlbatch.Row{ID: id(3)})
	q.exec(`UPDATE chanq_orders_dead SET ended_at = 100 - get_byte(uuid_send(id), 0)`)
	require.Equal(t, []byte{3}, q.ids(q.db, q.Redrive(1, nil, sqlbatch.Window{})))
	require.Equal(t, []byte{1}, q.ids(q.db, q.Redrive(0, [][16]byte{id(3), id(1)}, sqlbatch.Window{})))
	require.Equal(t, []byte{2}, q.ids(q.db, q.Redrive(1, nil, sqlbatch.Window{})))
}

// bury sets messages aside one after the other, so that keys may repeat.
func (q *serverQueue) bury(rows ...sqlbatch.Row) {
	q.Helper()
	for _, row := range rows {
		q.enqueue(row)
		require.Len(q, q.claim(q.db, 1), 1)
		require.Len(q, q.settled(q.db, q.Bury([]sqlbatch.BuryItem{{Item: q.item(row.ID[0])}})), 1)
	}
}

func TestRedriveLeavesWhatCannotLive(t *testing.T) {
	all := [][16]byte{id(1), id(2), id(3), id(4), id(5)}
	for name, redrive := range map[string]func(q *serverQueue) sqlbatch.Statement{
		"oldest": func(q *serverQueue) sqlbatch.Statement { return q.Redrive(10, nil, sqlbatch.Window{}) },
		"listed": func(q *serverQueue) sqlbatch.Statement { return q.Redrive(0, all, sqlbatch.Window{}) },
	} {
		q := newQueue(t)
		q.bury(sqlbatch.Row{ID: id(1), Key: "live"}, sqlbatch.Row{ID: id(3), Key: "twice"}, sqlbatch.Row{ID: id(2), Key: "twice"},
			sqlbatch.Row{ID: id(4)}, sqlbatch.Row{ID: id(5), Key: "free"})
		q.enqueue(sqlbatch.Row{ID: id(9), Key: "live"}, sqlbatch.Row{ID: id(4)})
		require.ElementsMatch(t, []byte{2, 5}, q.ids(q.db, redrive(q)), name)
		require.Empty(t, q.ids(q.db, redrive(q)), name)
		require.Len(t, q.rows(q.db, q.Peek(sqlbatch.Dead, 10)), 3)
	}
}

// What a pool of transactions in between needs: statements that are prepared
// by no name, or not at all.
func TestRunsInEveryModeOfPgx(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			config := pgtest.Config(t)
			config.DefaultQueryExecMode = mode
			db := stdlib.OpenDB(*config)
			t.Cleanup(func() { db.Close() })
			names := sqlbatch.Names{Queue: "orders"}
			migrate(t, db, names)
			q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(names)}

			q.enqueue(sqlbatch.Row{ID: id(1), Body: []byte{0, 1, 255, '\''}, Headers: []byte{0}, Key: `a'b"`}, sqlbatch.Row{ID: id(2)})
			require.Len(t, q.rows(db, q.Find([][16]byte{id(2)}, []string{`a'b"`})), 2)
			require.Len(t, q.claim(db, 10), 2)
			require.Equal(t, []byte{0, 1, 255, '\''}, q.get(1)["body"])
			require.Len(t, q.settled(db, q.Nack([]sqlbatch.NackItem{{Item: q.item(1), Error: "it's"}})), 1)
			require.Equal(t, "it's", q.get(1)["last_error"])
			require.Len(t, q.settled(db, q.Ack(q.items(2))), 1)
			require.Equal(t, []byte{1}, q.ids(db, q.Cancel([][16]byte{id(1)})))
			for name, st := range suite.Calls(q.Queue, "a") {
				tx := q.begin()
				q.rows(tx, st)
				require.NoError(t, tx.Rollback(), name)
			}
		})
	}
}
