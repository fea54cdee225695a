package sqlserver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

const watchStep = 5 * time.Millisecond

// watch is a running watch with its session.
type watch struct {
	*queue
	conn  *sql.Conn
	done  chan watched
	heads []int64 // of each queue, once it has ended
}

type watched struct {
	rows [][]any
	err  error
}

// session returns a connection that is not shared.
func (q *queue) session(ctx context.Context) *sql.Conn {
	q.t.Helper()
	conn, err := q.DB().Conn(ctx)
	require.NoError(q.t, err)
	q.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// watch begins a watch and returns when it waits, or has ended.
func (q *queue) watch(ctx context.Context, conn *sql.Conn, most time.Duration, queues ...sqlbatch.Watched) *watch {
	q.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	q.t.Cleanup(cancel) // before the cleanup of the session, whose Close waits for the statement
	w := &watch{queue: q, conn: conn, done: make(chan watched, 1)}
	before := q.Clock().Waiting()
	go func() {
		rows, err := suite.Rows(ctx, conn, sqlserver.Dialect.Watch(queues, watchStep, most))
		w.done <- watched{rows, err}
	}()
	w.asleep(before + 1)
	return w
}

// asleep waits until n sessions wait for the clock, or this watch has ended.
func (w *watch) asleep(n int) {
	for {
		changed := w.Clock().Changed()
		if w.Clock().Waiting() >= n {
			return
		}
		select {
		case <-changed:
		case d := <-w.done:
			w.done <- d
			return
		}
	}
}

// result returns place, seated, found of each queue. The heads are in w.heads.
func (w *watch) result() [][]any {
	w.t.Helper()
	select {
	case d := <-w.done:
		require.NoError(w.t, d.err)
		rows := make([][]any, len(d.rows))
		for i, row := range d.rows {
			rows[i], w.heads = row[:3], append(w.heads, row[3].(int64))
		}
		return rows
	case <-time.After(testdb.Patience):
		require.FailNow(w.t, "it continues to wait")
		return nil
	}
}

// looks makes the server look again.
func (w *watch) looks() {
	w.Clock().Advance(watchStep)
	w.asleep(1)
}

// requireWaiting requires that the watch has not ended.
func (w *watch) requireWaiting() {
	w.t.Helper()
	select {
	case d := <-w.done:
		require.Fail(w.t, "it has ended", "%v", d)
	default:
	}
}

func answer(place, seated, found int64) []any { return []any{place, seated, found} }

var orders = sqlbatch.Watched{Names: suite.Orders, Look: true}

func eachSnapshot(t *testing.T, test func(t *testing.T, ctx context.Context, q *queue)) {
	t.Parallel()
	for _, rcsi := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshots=%v", rcsi), func(t *testing.T) {
			t.Parallel()
			test(t, testdb.Soon(t), newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: rcsi}))
		})
	}
}

func TestAWatchEndsWithTheReadThatFindsAMessage(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		conn := q.session(ctx)
		w := q.watch(ctx, conn, time.Second, orders)
		w.looks()
		w.looks()
		w.requireWaiting()
		q.exec(q.Enqueue(makeRows(1, 1)))
		w.looks()
		require.Equal(t, [][]any{answer(0, 1, 1)}, w.result())

		w = q.watch(ctx, conn, time.Second, orders)
		require.Equal(t, [][]any{answer(0, 1, 1)}, w.result(), "the first look")
		require.Len(t, q.rows(q.Claim(claimTen)), 1)
		w = q.watch(ctx, conn, time.Second, orders)
		w.looks()
		w.requireWaiting()
		q.Clock().Advance(time.Second)
		require.Equal(t, [][]any{answer(0, 1, 0)}, w.result(), "its time has passed")
		w = q.watch(ctx, conn, 0, orders)
		require.Equal(t, [][]any{answer(0, 1, 0)}, w.result(), "one look")
	})
}

// An open transaction is skipped, and its message is found after the commit, if that is soon.
func TestAWatchNeverBlocksAndFindsCommittedMessages(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		w := q.watch(ctx, q.session(ctx), time.Second, orders)
		tx := begin(t, ctx, q)
		st := q.InTx().Enqueue(makeRows(1, 0))
		_, err := tx.ExecContext(ctx, st.Text, st.Args...)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "UPDATE dbo.chanq__queues SET paused = 0")
		require.NoError(t, err)
		for range 4 {
			w.looks()
		}
		w.requireWaiting()
		require.Empty(t, waiting(q))
		require.NoError(t, tx.Commit())
		w.looks()
		require.Equal(t, [][]any{answer(0, 1, 1)}, w.result())
	})
}

// The version of a message from before its claim does not count.
func TestAWatchSkipsMessagesThatAreBeingClaimed(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		q.exec(q.Enqueue(makeRows(1, 0)))
		tx := begin(t, ctx, q)
		claimed, err := suite.Rows(ctx, tx, q.InTx().Claim(claimTen))
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		w := q.watch(ctx, q.session(ctx), time.Second, orders)
		w.looks()
		w.requireWaiting()
		require.NoError(t, tx.Rollback())
		w.looks()
		require.Equal(t, [][]any{answer(0, 1, 1)}, w.result())
	})
}

func TestAWatchHoldsOnlyItsListenerSlotBetweenReads(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		q.exec(q.Enqueue(makeRows(3, 0)))
		require.Len(t, q.rows(q.Claim(claimTen)), 3)
		conn := q.session(ctx)
		w := q.watch(ctx, conn, time.Second, orders)
		for range 3 {
			w.looks()
			held := q.Locks()
			require.Len(t, held, 1)
			require.NotEmpty(t, held[0].App)
		}
		q.Clock().Advance(time.Second)
		w.result()
		require.Empty(t, q.Locks(), "the listener slot is released")
	})
}

func TestAtMostTwoSessionsWatchAQueue(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		first, second, third := q.session(ctx), q.session(ctx), q.session(ctx)
		a := q.watch(ctx, first, time.Second, orders)
		b := q.watch(ctx, second, time.Second, orders)
		require.Equal(t, [][]any{answer(0, 0, 0)}, q.watch(ctx, third, time.Second, orders).result(), "at once")
		a.requireWaiting()
		b.requireWaiting()
		q.exec(q.Enqueue(makeRows(1, 0)))
		q.Clock().Advance(watchStep)
		require.Equal(t, [][]any{answer(0, 1, 1)}, a.result())
		for range 3 {
			b.asleep(1)
			b.requireWaiting()
			q.Clock().Advance(watchStep)
		}
		b.asleep(1)
		b.requireWaiting()
		q.Clock().Advance(watchStep)
		require.Equal(t, [][]any{answer(0, 1, 1)}, b.result(), "since the first is slow")
		require.Equal(t, [][]any{answer(0, 1, 1)}, q.watch(ctx, third, time.Second, orders).result())
	})
}

// A process that dies releases its listener slot with its session. So does one that is interrupted: the driver ends the
// request, and chanq the session.
func TestAListenerSlotEndsWithItsSession(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		conn := q.session(ctx)
		interrupted, cancel := context.WithCancel(ctx)
		w := q.watch(interrupted, conn, time.Hour, orders)
		cancel()
		d := <-w.done
		require.ErrorIs(t, d.err, context.Canceled)
		require.Empty(t, q.Waiting(), "the attention has ended the wait")
		require.NoError(t, conn.PingContext(ctx))
		require.Len(t, q.Locks(), 1, "so its session must be closed")
		require.ErrorIs(t, conn.Raw(func(any) error { return driver.ErrBadConn }), driver.ErrBadConn)
		require.Eventually(t, func() bool { return len(q.Locks()) == 0 }, testdb.Patience, time.Millisecond)
	})
}

func TestAWatchOfSeveralQueuesReturnsThoseWithMessages(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		others := []sqlbatch.Names{{Queue: "a"}, {Queue: "b"}}
		all := []sqlbatch.Watched{{Names: others[0], Look: true}, {Names: others[1], Look: true}, orders}
		for _, n := range others {
			testdb.MigrateTables(t, sqlserver.Dialect, q.DB(), n)
		}
		conn := q.session(ctx)
		w := q.watch(ctx, conn, time.Second, all...)
		q.exec(sqlserver.Dialect.Queue(others[1]).Enqueue(makeRows(1, -1)))
		q.exec(q.Enqueue(makeRows(1, 2)))
		w.looks()
		require.Equal(t, [][]any{answer(0, 1, 0), answer(1, 1, 1), answer(2, 1, 1)}, w.result())

		all[1].Look, all[2].Look = false, false
		w = q.watch(ctx, conn, time.Second, all...)
		w.looks()
		w.requireWaiting()
		held := q.Locks()
		require.Len(t, held, 1)
		require.Regexp(t, `^chanq listener 1 of -?\d+\.a$`, held[0].App)
		q.Clock().Advance(time.Second)
		require.Equal(t, [][]any{answer(0, 1, 0), answer(1, 0, 0), answer(2, 0, 0)}, w.result())
		all[0].Look = false
		require.Equal(t, [][]any{answer(0, 0, 0), answer(1, 0, 0), answer(2, 0, 0)}, q.watch(ctx, conn, time.Second, all...).result(), "there is nothing to wait for")
		require.Equal(t, sqlserver.Dialect.Watch(all, watchStep, 0).Args[0], sqlserver.Dialect.Watch([]sqlbatch.Watched{{Names: others[0], Look: true}, all[1], orders}, time.Second, time.Second).Args[0],
			"one text for any set of queues")
	})
}

func TestAPausedQueueEndsNoWatchUntilItIsResumed(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		q.exec(q.Pause("someone", "a test"))
		q.exec(q.Enqueue(makeRows(1, 0)))
		w := q.watch(ctx, q.session(ctx), time.Hour, orders)
		for range 100 { // longer than a HeadMargin
			w.looks()
		}
		w.requireWaiting()
		q.exec(q.Resume())
		w.looks()
		require.Equal(t, [][]any{answer(0, 1, 1)}, w.result())
	})
}

// Leased messages are walked once. Each later look reads the messages of the last moments.
func TestAWatchReadsLeasedMessagesOnce(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true, KeepGhosts: true})
	const leased, looks = 1000, 20
	q.store(leased, 0)
	r := &reader{queue: q}
	r.claimAll(leased, time.Hour)
	from := orders
	from.Head = 1
	w := q.watch(ctx, q.session(ctx), time.Hour, from)
	require.GreaterOrEqual(t, cost(q, "WAITFOR").KeysRead, int64(leased), "the first look")
	q.ResetQueryStats()
	for range looks {
		w.looks()
	}
	require.LessOrEqual(t, cost(q, "WAITFOR").KeysRead, int64(looks))
	q.exec(q.Enqueue(makeRows(1, 0)))
	w.looks()
	require.Equal(t, [][]any{answer(0, 1, 1)}, w.result())

	from.Head = w.heads[0]
	require.Len(t, r.claim(1, time.Hour), 1)
	q.ResetQueryStats()
	w = q.watch(ctx, w.conn, time.Hour, from)
	require.Less(t, cost(q, "WAITFOR").KeysRead, int64(leased), "from the head of the previous request")
	w.requireWaiting()
}

// The next request begins a HeadMargin before the first message that can be claimed, or, if there is none, before the
// last look; and so does a request without a head.
func TestAWatchReturnsTheStartOfTheNextOne(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		const margin = int64(sqlbatch.HeadMargin / time.Millisecond)
		now := func() int64 { return q.Clock().Now().UnixMilli() }
		conn := q.session(ctx)
		look := func(head int64) (found, next int64) {
			from := orders
			from.Head = head
			w := q.watch(ctx, conn, 0, from)
			return w.result()[0][2].(int64), w.heads[0]
		}
		found, next := look(1)
		require.Zero(t, found)
		require.Equal(t, now()-margin, next)

		first := now()
		q.exec(q.Enqueue(makeRows(1, -1))) // of a priority other than the next ones
		q.Clock().Advance(10 * time.Millisecond)
		q.exec(q.Enqueue(makeRows(1, 2)))
		q.Clock().Advance(time.Second)
		found, head := look(next)
		require.EqualValues(t, 1, found)
		require.Equal(t, first-margin, head)
		found, again := look(head)
		require.EqualValues(t, 1, found)
		require.Equal(t, head, again, "it was not claimed")
		found, _ = look(0)
		require.Zero(t, found, "it looks for messages from now on")

		r := &reader{queue: q}
		r.claim(1, time.Hour)
		found, again = look(head)
		require.EqualValues(t, 1, found)
		require.Equal(t, head, again, "the highest priority was claimed, not the first that is due")
		r.claim(1, time.Hour)
		found, again = look(head)
		require.Zero(t, found)
		require.Equal(t, now()-margin, again)
		found, again = look(now() + 1_000_000)
		require.Zero(t, found)
		require.Equal(t, now()-margin, again, "a head that the server's clock has not reached")
		q.exec(q.Enqueue(makeRows(1, 0)))
		found, _ = look(now() + 1_000_000)
		require.EqualValues(t, 1, found)
	})
}

func TestAWatchFindsMessagesThatBecomeDue(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		later := makeRows(1, 0)
		later[0].Delay = 3 * watchStep
		q.exec(q.Enqueue(later))
		w := q.watch(ctx, q.session(ctx), time.Hour, orders)
		w.looks()
		w.looks()
		w.requireWaiting()
		w.looks()
		require.Equal(t, [][]any{answer(0, 1, 1)}, w.result())
	})
}

// A change of the table itself has an exclusive lock. The watch does not wait for it.
func TestAWatchFailsSoonIfTheTableIsLocked(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, ctx context.Context, q *queue) {
		tx := begin(t, ctx, q)
		_, err := tx.ExecContext(ctx, "ALTER TABLE dbo.chanq_orders SET (LOCK_ESCALATION = DISABLE)")
		require.NoError(t, err)
		w := q.watch(ctx, q.session(ctx), time.Hour, orders)
		w.Clock().Advance(sqlbatch.LockWait)
		d := <-w.done
		require.EqualValues(t, 1222, numberOf(d.err))
	})
}
