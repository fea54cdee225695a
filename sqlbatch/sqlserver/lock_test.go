package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

// eachSetting runs a test with READ_COMMITTED_SNAPSHOT off and on. The server's
// clock is stopped, so no wait for a lock times out.
func eachSetting(t *testing.T, test func(t *testing.T, ctx context.Context, q *queue, orders *chanq.Queue[int])) {
	t.Parallel()
	for _, rcsi := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshots=%v", rcsi), func(t *testing.T) {
			t.Parallel()
			ctx := testdb.Soon(t)
			q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: rcsi, AllowSnapshotIsolation: rcsi})
			orders, err := chanq.Open[int](ctx, q.DB(), "orders", chanq.Config{})
			require.NoError(t, err)
			test(t, ctx, q, orders)
		})
	}
}

// send stores messages with the bodies from first to last.
func send(t *testing.T, ctx context.Context, q *chanq.Queue[int], first, last int) {
	t.Helper()
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	var ms []chanq.Message[int]
	for i := first; i <= last; i++ {
		ms = append(ms, chanq.Message[int]{Body: i})
	}
	_, err = p.SendBatch(ctx, ms...)
	require.NoError(t, err)
	require.NoError(t, p.Close(ctx))
}

// begin opens a transaction that is rolled back with the test.
func begin(t *testing.T, ctx context.Context, q *queue) *sql.Tx {
	t.Helper()
	tx, err := q.DB().BeginTx(ctx, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// consume starts a consumer that ends with the test, even if the test fails.
func consume(t *testing.T, ctx context.Context, q *chanq.Queue[int], cfg chanq.ConsumerConfig) *chanq.Consumer[int] {
	t.Helper()
	c, err := q.Consume(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
		defer cancel()
		_ = c.Shutdown(bound)
	})
	return c
}

// receive receives n leases.
func receive(t *testing.T, ctx context.Context, c *chanq.Consumer[int], n int) (bodies []int) {
	t.Helper()
	for range n {
		select {
		case l := <-c.C():
			bodies = append(bodies, l.Body)
			require.NoError(t, l.Ack())
			require.NoError(t, l.Wait(ctx))
		case <-ctx.Done():
			require.FailNow(t, "blocked", "after %v", bodies)
		}
	}
	return bodies
}

// waiting lists the lock requests that wait.
func waiting(q *queue) (list []mssqltest.Lock) {
	for _, l := range q.Locks() {
		if l.Waiting {
			list = append(list, l)
		}
	}
	return list
}

func TestAConsumerTakesTheNextRowsWhileAnotherHoldsAClaimOpen(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, orders *chanq.Queue[int]) {
		send(t, ctx, orders, 1, 10)
		tx := begin(t, ctx, q)
		claimed, err := suite.Rows(ctx, tx, q.InTx().Claim(sqlbatch.ClaimParams{Rows: 3, Lease: time.Minute, Inline: sqlbatch.MaxBody}))
		require.NoError(t, err)
		require.Len(t, claimed, 3)

		c := consume(t, ctx, orders, chanq.ConsumerConfig{PollEvery: 10 * time.Millisecond})
		require.Equal(t, []int{4, 5, 6, 7, 8, 9, 10}, receive(t, ctx, c, 7))
		require.NoError(t, tx.Rollback())
		require.Equal(t, []int{1, 2, 3}, receive(t, ctx, c, 3), "a claim that was rolled back has no effect")
		require.NoError(t, c.Shutdown(ctx))
	})
}

func TestAnEnqueueThatIsNotCommittedIsSkipped(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, orders *chanq.Queue[int]) {
		tx := begin(t, ctx, q)
		_, err := orders.SendTx(ctx, tx, chanq.Message[int]{Body: 1}, chanq.Message[int]{Body: 2})
		require.NoError(t, err)
		send(t, ctx, orders, 3, 5)

		c := consume(t, ctx, orders, chanq.ConsumerConfig{PollEvery: 10 * time.Millisecond})
		require.Equal(t, []int{3, 4, 5}, receive(t, ctx, c, 3))
		for c.Stats().Looks < 3 { // idle consumers also look past it
			require.NoError(t, ctx.Err())
		}
		require.NoError(t, tx.Commit())
		require.Equal(t, []int{1, 2}, receive(t, ctx, c, 2))
		require.NoError(t, c.Shutdown(ctx))
	})
}

func TestAnAckThatIsNotCommittedIsSkippedEvenAfterItsLeaseEnded(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, orders *chanq.Queue[int]) {
		send(t, ctx, orders, 1, 5)
		leases := testdb.Lease(t, orders, 2, time.Minute)
		kept, undone := begin(t, ctx, q), begin(t, ctx, q)
		require.NoError(t, leases[0].AckTx(ctx, kept))
		require.NoError(t, leases[1].AckTx(ctx, undone))
		q.Clock().Advance(2 * time.Minute)

		c := consume(t, ctx, orders, chanq.ConsumerConfig{PollEvery: 10 * time.Millisecond})
		require.Equal(t, []int{3, 4, 5}, receive(t, ctx, c, 3))
		require.NoError(t, kept.Commit())
		require.NoError(t, undone.Rollback())
		require.Equal(t, []int{2}, receive(t, ctx, c, 1), "messages of rolled back settles are redelivered, those of committed ones are gone")
		require.NoError(t, c.Shutdown(ctx))
	})
}

func TestAClaimOfAThousandRowsTakesNoTableLock(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true})
	for range 10 {
		q.exec(q.Enqueue(makeRows(512, 0)))
	}
	claim := func() {
		tx := begin(t, ctx, q)
		claimed, err := suite.Rows(ctx, tx, q.InTx().Claim(sqlbatch.ClaimParams{Rows: 1000, Lease: time.Minute, Inline: sqlbatch.MaxBody}))
		require.NoError(t, err)
		require.Len(t, claimed, 1000)
		for _, l := range q.Locks() {
			if l.Key == "" && l.App == "" {
				require.Contains(t, []string{"IS", "IU", "IX", "Sch-S"}, l.Mode, "%v", l)
			}
		}
		require.NoError(t, tx.Rollback())
	}
	touchAll := func() {
		tx := begin(t, ctx, q)
		_, err := tx.ExecContext(ctx, "UPDATE dbo.chanq_orders SET last_error = NULL")
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
	}
	claim()
	touchAll()
	require.Zero(t, q.Escalations(), "for any writer")

	// So far the table's setting prevented escalation. Without it a claim is still below the threshold.
	_, err := q.DB().ExecContext(ctx, "ALTER TABLE dbo.chanq_orders SET (LOCK_ESCALATION = TABLE)")
	require.NoError(t, err)
	claim()
	require.Zero(t, q.Escalations())
	touchAll()
	require.NotZero(t, q.Escalations())
}

// The rows that a claim skips are leased, and their holders settle and extend them meanwhile.
func TestAClaimKeepsNoLockOnRowsThatItSkips(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		for name := range suite.Settles(q.Queue) {
			passed := q.leased(5)
			q.exec(q.Enqueue(makeRows(5, 0)))
			claim := begin(t, ctx, q)
			claimed, err := suite.Rows(ctx, claim, q.InTx().Claim(claimTen))
			require.NoError(t, err)
			require.Len(t, claimed, 5)

			held := 0
			for _, l := range q.Locks() {
				if l.Key != "" {
					held++
				}
			}
			require.Equal(t, 5, held, "the rows that it claimed, and no entry of an index")
			settled, err := suite.Rows(ctx, q.DB(), suite.Settles(q.Queue, passed...)[name])
			require.NoError(t, err, name)
			require.Equal(t, passed, settledItems(settled), name)
			require.NoError(t, claim.Commit())
			q.rows(q.Cancel(idsOf(append(passed, itemsOf(claimed)...))))
		}
	})
}

// Concurrent claims take different messages, and each message is taken once.
func TestConcurrentClaimsAndSettlesDoNotDeadlock(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		const claimers, messages = 4, 600
		for range messages / 100 {
			q.exec(q.Enqueue(makeRows(100, 0)))
		}
		taken := make(chan []sqlbatch.Item, messages)
		failed := make(chan error, claimers)
		for n := range claimers {
			go func() {
				failed <- func() error {
					for {
						p := claimTen
						p.Rows, p.Salt = 25, int64(n+1)
						claimed, err := suite.Rows(ctx, q.DB(), q.Claim(p))
						if err != nil || len(claimed) == 0 {
							return err
						}
						items := itemsOf(claimed)
						taken <- items
						nacks := []sqlbatch.NackItem{}
						third := len(items) / 3
						for _, i := range items[:third] {
							nacks = append(nacks, sqlbatch.NackItem{Item: i, Delay: time.Hour})
						}
						for _, st := range []sqlbatch.Statement{q.Nack(nacks), q.Extend(suite.Consumer, items[third:], time.Hour), q.Ack(items[2*third:])} {
							if _, err := suite.Rows(ctx, q.DB(), st); err != nil {
								return err
							}
						}
					}
				}()
			}()
		}
		for range claimers {
			require.NoError(t, <-failed)
		}
		close(taken)
		seen := map[sqlbatch.Item]bool{}
		for items := range taken {
			for _, i := range items {
				require.False(t, seen[sqlbatch.Item{ID: i.ID}], "twice")
				seen[sqlbatch.Item{ID: i.ID}] = true
			}
		}
		require.NotEmpty(t, seen)
		rest := q.rows(q.Claim(sqlbatch.ClaimParams{Rows: 1000, Lease: time.Minute, Inline: sqlbatch.MaxBody}))
		require.Equal(t, messages, len(seen)+len(rest), "a message that a claim skipped because another claim was reading it is still stored")
	})
}

func TestSettlesOfTheSameRowsInAnyOrderDoNotDeadlock(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		q.exec(q.Enqueue(makeRows(9, 0)))
		items := itemsOf(q.rows(q.Claim(claimTen)))
		backwards := make([]sqlbatch.Item, len(items))
		for i, it := range items {
			backwards[len(items)-1-i] = it
		}
		// Another transaction has locked the row in the middle, so that each settle, in a transaction of the caller where it waits, stops
		// there with the locks that it has taken so far.
		middle := begin(t, ctx, q)
		_, err := middle.ExecContext(ctx, "UPDATE dbo.chanq_orders SET last_error = NULL WHERE id = @p1", items[4].ID[:])
		require.NoError(t, err)
		outcome := make(chan error, 2)
		settle := func(list []sqlbatch.Item) {
			tx, err := q.DB().BeginTx(ctx, nil)
			if err == nil {
				_, err = suite.Rows(ctx, tx, q.InTx().Ack(list))
				err = errors.Join(err, tx.Commit())
			}
			outcome <- err
		}
		for n, list := range [][]sqlbatch.Item{items, backwards} {
			go settle(list)
			require.Eventually(t, func() bool { return len(waiting(q)) == n+1 }, testdb.Patience, time.Millisecond)
		}
		require.NoError(t, middle.Commit())
		require.NoError(t, <-outcome)
		require.NoError(t, <-outcome)
	})
}

func TestADeadlockWithTheApplicationCostsARepetition(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, orders *chanq.Queue[int]) {
		send(t, ctx, orders, 1, 2)
		c := consume(t, ctx, orders, chanq.ConsumerConfig{})
		first, second := <-c.C(), <-c.C()
		tx := begin(t, ctx, q)
		// A row that was read is not skipped: the settle has U on it and waits for X, and the reader then tries to write it.
		_, err := tx.ExecContext(ctx, "SELECT fence FROM dbo.chanq_orders WITH (REPEATABLEREAD) WHERE id = @p1", first.ID[:])
		require.NoError(t, err)
		require.NoError(t, first.Ack())
		require.NoError(t, second.Ack())
		flushed := make(chan error, 1)
		go func() { flushed <- c.Flush(ctx) }()
		require.Eventually(t, func() bool { return len(waiting(q)) == 1 }, testdb.Patience, time.Millisecond)
		_, err = tx.ExecContext(ctx, "SET DEADLOCK_PRIORITY HIGH; UPDATE dbo.chanq_orders SET last_error = NULL WHERE id = @p1", first.ID[:])
		require.NoError(t, err, "the settle is the victim")
		require.NoError(t, tx.Commit())
		require.NoError(t, <-flushed)
		require.NoError(t, errors.Join(first.Wait(ctx), second.Wait(ctx)))
		require.NoError(t, c.Shutdown(ctx))
	})
}

// Each statement for dead messages locks a row by its key first, and its entries in the other indexes after that. It skips a row of
// which only the key is locked, and holds nothing that the holder of the key needs.
func TestStatementsForDeadMessagesSkipARowWithALockedKey(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		dead := q.leased(4)
		q.rows(suite.Settles(q.Queue, dead...)["dead-letter"])
		tx := begin(t, ctx, q)
		_, err := tx.ExecContext(ctx, "UPDATE dbo.chanq_orders__dead SET last_error = NULL WHERE id = @p1", dead[0].ID[:])
		require.NoError(t, err)
		for _, use := range []struct {
			name string
			st   sqlbatch.Statement
			want int
		}{
			{"causes", q.Causes(sqlbatch.Group{}, 10, 10), 1}, {"walk", q.Walk(nil, 10, sqlbatch.Window{}), 3}, {"bodies", q.Bodies(sqlbatch.Dead, idsOf(dead)), 3},
			{"trim", q.Trim(sqlbatch.Dead, 0, 1, 0), 1}, {"redrive", q.Redrive(1, nil, sqlbatch.Window{}), 1}, {"purge", q.Purge(sqlbatch.Dead, 10, sqlbatch.Window{}), 1},
		} {
			rows, err := suite.Rows(ctx, q.DB(), use.st)
			require.NoError(t, err, use.name)
			require.Len(t, rows, use.want, use.name)
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM dbo.chanq_orders__dead WHERE id = @p1", dead[0].ID[:])
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
	})
}

// If a lock keeps a sample from being added to one of its rows, it has added to no row, and has created none.
func TestASampleIsAddedAsAWhole(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		q.rows(q.Sample(sqlbatch.Sample{Sent: 1}))
		q.Clock().Advance(2 * time.Minute) // another row of ten seconds and of a minute, and the same of the hour
		stored := func() [][]any {
			return q.rows(sqlbatch.Statement{Text: "SELECT h.step, h.sent FROM dbo.chanq__samples AS h WITH (READUNCOMMITTED) ORDER BY h.step, h.at"})
		}
		before := stored()
		require.Len(t, before, 3)
		tx := begin(t, ctx, q)
		_, err := suite.Rows(ctx, tx, sqlbatch.Statement{Text: "SELECT h.at FROM dbo.chanq__samples AS h WITH (REPEATABLEREAD) WHERE h.step = 3600"})
		require.NoError(t, err, "it can be read, but not written")
		failed := make(chan error, 1)
		go func() {
			_, err := suite.Rows(ctx, q.DB(), q.Sample(sqlbatch.Sample{Sent: 1}))
			failed <- err
		}()
		require.Eventually(t, func() bool { return q.Clock().Waiting() == 1 }, testdb.Patience, time.Millisecond) // for a lock, and its time has begun
		q.Clock().Advance(sqlbatch.LockWait + time.Millisecond)
		require.Equal(t, int32(1222), numberOf(<-failed))
		require.NoError(t, tx.Rollback())
		require.Equal(t, before, stored())
	})
}

// empty reports whether the queue is empty. It returns at once: the server's clock is stopped, and no wait for a lock would end.
func (q *queue) empty() bool {
	q.t.Helper()
	rows := q.rows(q.Empty())
	require.Len(q.t, rows, 1)
	require.Len(q.t, rows[0], 1)
	return rows[0][0] == int64(1)
}

func TestAnUncommittedDeleteDoesNotMakeAQueueEmpty(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		require.True(t, q.empty())
		for name := range suite.Settles(q.Queue) {
			for _, commit := range []bool{false, true} {
				leased := q.leased(1)
				tx := begin(t, ctx, q)
				settled, err := suite.Rows(ctx, tx, suite.Settles(q.InTx(), leased...)[name])
				require.NoError(t, err)
				require.Len(t, settled, 1)
				require.False(t, q.empty(), "%s is open", name)
				if commit {
					require.NoError(t, tx.Commit())
				} else {
					require.NoError(t, tx.Rollback())
				}
				ended := commit && (name == "ack" || name == "archive" || name == "dead-letter")
				require.Equal(t, ended, q.empty(), "%s, commit %v", name, commit)
				q.rows(q.Cancel(idsOf(leased)))
				require.True(t, q.empty())
			}
		}
	})
}

// A look at an empty queue leaves no lock behind, in no session, and a writer does not wait for one.
func TestEmptyKeepsNoLock(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		conn, err := q.DB().Conn(ctx)
		require.NoError(t, err)
		defer conn.Close()
		for _, messages := range []int{0, 1} {
			if messages > 0 {
				q.exec(q.Enqueue(makeRows(messages, 0)))
			}
			rows, err := suite.Rows(ctx, conn, q.Empty())
			require.NoError(t, err)
			require.Equal(t, [][]any{{int64(1 - messages)}}, rows)
			require.Empty(t, q.Locks())
		}
		reader := begin(t, ctx, q) // another reader's table lock does not stop it
		_, err = suite.Rows(ctx, reader, sqlbatch.Statement{Text: "SELECT id FROM dbo.chanq_orders WITH (REPEATABLEREAD)"})
		require.NoError(t, err)
		require.False(t, q.empty())
	})
}

func TestALeakedIsolationLevelDoesNotBreakAClaim(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"SNAPSHOT", "SERIALIZABLE"} {
		ctx := testdb.Soon(t)
		q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), AllowSnapshotIsolation: true})
		orders, err := chanq.Open[int](ctx, q.DB(), "orders", chanq.Config{})
		require.NoError(t, err)
		send(t, ctx, orders, 1, 1)
		q.DB().SetMaxOpenConns(1)
		_, err = q.DB().ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL "+level)
		require.NoError(t, err)
		_, err = suite.Rows(ctx, q.DB(), q.InTx().Claim(claimTen))
		require.Equal(t, int32(650), numberOf(err), "the level has leaked: %v", err)
		rows, err := suite.Rows(ctx, q.DB(), q.Claim(claimTen))
		require.NoError(t, err)
		require.Len(t, rows, 1)
	}
}

// beforeLine calls what before the first statement that begins with a line. The error that it returns becomes that of the statement.
func (q *queue) beforeLine(begins string, what func() error) {
	var began atomic.Bool
	q.SetHooks(mssqltest.Hooks{Before: func(_ context.Context, st mssqltest.Statement) error {
		if strings.HasPrefix(strings.Split(st.Text, "\n")[st.Line-1], begins) && began.CompareAndSwap(false, true) {
			return what()
		}
		return nil
	}})
	q.t.Cleanup(func() { q.SetHooks(mssqltest.Hooks{}) })
}

// Purges, trims and redrives by time skip a dead message that a redrive by ID has locked, and keep no lock that it needs.
func TestPurgesAndTrimsDoNotDeadlockWithRedrives(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		for name, st := range map[string]sqlbatch.Statement{
			"purge":   q.Purge(sqlbatch.Dead, 10, sqlbatch.Window{}),
			"trim":    q.Trim(sqlbatch.Dead, 0, 10, 0),
			"redrive": q.Redrive(10, nil, sqlbatch.Window{}),
		} {
			leased := q.leased(3)
			require.Len(t, q.rows(suite.Settles(q.Queue, leased...)["dead-letter"]), 3)
			q.Clock().Advance(time.Second)
			passed := make(chan error, 1)
			q.beforeLine("INSERT INTO [dbo].[chanq_orders] ", func() error { // by then it has chosen the message, and locked the row
				go func() {
					_, err := suite.Rows(ctx, q.DB(), st)
					passed <- err
				}()
				require.Eventually(t, func() bool { return len(passed) > 0 || len(waiting(q)) > 0 }, testdb.Patience, time.Millisecond)
				return nil
			})
			moved, err := suite.Rows(ctx, q.DB(), q.Redrive(0, idsOf(leased[1:2]), sqlbatch.Window{}))
			require.NoError(t, err, name)
			require.NoError(t, <-passed, name)
			require.Len(t, moved, 1, name)
			q.rows(q.Cancel(idsOf(leased)))
		}
	})
}

// A sample whose last statement fails is repeated completely, and has counted nothing before.
func TestASampleThatFailsAtItsEndHasCountedNothing(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		st := q.Sample(sqlbatch.Sample{Sent: 3})
		q.beforeLine("SELECT h.step, CASE", func() error { return &mssqltest.Error{Number: 1222, Class: 16, State: 1, Message: "lock timeout"} })
		_, err := suite.Rows(ctx, q.DB(), st)
		require.Equal(t, int32(1222), numberOf(err))
		require.Len(t, q.rows(st), 1)
		for _, step := range sqlbatch.SampleSteps {
			samples := q.rows(q.Samples(0, time.Duration(step)*time.Second))
			require.Len(t, samples, 1)
			require.Equal(t, int64(3), samples[0][6], "sent")
		}
	})
}
