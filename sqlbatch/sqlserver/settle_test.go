package sqlserver_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// leased stores n messages and claims them.
func (q *queue) leased(n int) []sqlbatch.Item {
	q.t.Helper()
	q.exec(q.Enqueue(makeRows(n, 0)))
	p := claimTen
	p.Rows = n
	items := itemsOf(q.rows(q.Claim(p)))
	require.Len(q.t, items, n)
	return items
}

// hold locks the row of a message in a transaction that ends with the test.
func hold(t *testing.T, ctx context.Context, q *queue, id [16]byte) *sql.Tx {
	t.Helper()
	tx := begin(t, ctx, q)
	_, err := tx.ExecContext(ctx, "UPDATE dbo.chanq_orders SET last_error = NULL WHERE id = @p1", id[:])
	require.NoError(t, err)
	return tx
}

func TestASettleLeavesOutOnlyTheLockedRow(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		for name := range suite.Settles(q.Queue) {
			items := q.leased(5)
			holder := hold(t, ctx, q, items[2].ID)
			settled, err := suite.Rows(ctx, q.DB(), suite.Settles(q.Queue, items...)[name])
			require.NoError(t, err, name)
			require.Equal(t, []sqlbatch.Item{items[0], items[1], items[3], items[4]}, settledItems(settled), name)

			ids := [][16]byte{items[2].ID}
			_, err = suite.Rows(ctx, q.DB(), q.Look(ids))
			require.Equal(t, int32(1222), numberOf(err), "%s: it is locked, not gone: %v", name, err)
			require.Equal(t, sqlbatch.RolledBack, sqlserver.Dialect.Classify(err))

			require.NoError(t, holder.Rollback())
			require.Equal(t, [][]any{{string(items[2].ID[:]), items[2].Fence}}, q.rows(q.Look(ids)), "it is still leased")
			require.Equal(t, []sqlbatch.Item{items[2]}, settledItems(q.rows(suite.Settles(q.Queue, items[2:3]...)[name])), name)
			q.rows(q.Cancel(idsOf(items)))
		}
	})
}

func settledItems(rows [][]any) []sqlbatch.Item { return suite.Items(rows, 1) }

func idsOf(items []sqlbatch.Item) (ids [][16]byte) {
	for _, i := range items {
		ids = append(ids, i.ID)
	}
	return ids
}

func TestASettleInACallersTransactionWaitsUnlessItSkipsLocked(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		items := q.leased(3)
		holder := hold(t, ctx, q, items[1].ID)
		skipping := begin(t, ctx, q)
		settled, err := suite.Rows(ctx, skipping, q.InTx().SkipLocked().Ack(items))
		require.NoError(t, err)
		require.Equal(t, []sqlbatch.Item{items[0], items[2]}, settledItems(settled))
		require.NoError(t, skipping.Rollback())

		outcome := make(chan []sqlbatch.Item, 1)
		patient := begin(t, ctx, q)
		go func() {
			settled, _ := suite.Rows(ctx, patient, q.InTx().Ack(items))
			outcome <- settledItems(settled)
		}()
		require.Eventually(t, func() bool { return len(waiting(q)) == 1 }, testdb.Patience, time.Millisecond)
		require.NoError(t, holder.Rollback())
		require.Equal(t, items, <-outcome)
	})
}

// READPAST does not skip a row that a reader keeps locked after it has read it: LOCK_TIMEOUT bounds how long a settle
// waits for it.
func TestASettleWaitsForAReaderNoLongerThanLockWait(t *testing.T) {
	t.Parallel()
	for name := range suite.Settles(sqlserver.Dialect.Queue(suite.Orders)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testdb.Soon(t)
			q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped()})
			items := q.leased(2)
			reader := begin(t, ctx, q)
			_, err := reader.ExecContext(ctx, "SELECT fence FROM dbo.chanq_orders WITH (REPEATABLEREAD) WHERE id = @p1", items[0].ID[:])
			require.NoError(t, err)
			outcome := make(chan error, 1)
			go func() {
				_, err := suite.Rows(ctx, q.DB(), suite.Settles(q.Queue, items...)[name])
				outcome <- err
			}()
			require.Eventually(t, func() bool { return q.Clock().Waiting() == 1 }, testdb.Patience, time.Millisecond)
			q.Clock().Advance(sqlbatch.LockWait)
			err = <-outcome
			require.Equal(t, int32(1222), numberOf(err), "%v", err)
			require.NoError(t, reader.Rollback())
			require.Len(t, q.rows(suite.Settles(q.Queue, items...)[name]), 2, "it had no effect")
		})
	}
}

func TestALookDoesNotWaitForWaitersOfALock(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		items := q.leased(2)
		require.NoError(t, func() error {
			tx := begin(t, ctx, q)
			_, err := suite.Rows(ctx, tx, q.InTx().Ack(items[:1]))
			return err
		}())
		_, err := suite.Rows(ctx, q.DB(), q.Look(idsOf(items)))
		require.Equal(t, int32(1222), numberOf(err), "an ack that is not committed: %v", err)
		require.Len(t, q.rows(q.Look(idsOf(items[1:]))), 1)
		require.Empty(t, q.rows(q.Look([][16]byte{newID()})))
	})
}

func TestOpenTransactionsOnTheTableOfQueuesDelayNoClaim(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		q.exec(q.Enqueue(makeRows(2, 0)))
		tx := begin(t, ctx, q)
		_, err := tx.ExecContext(ctx, "UPDATE dbo.chanq__queues SET paused = paused")
		require.NoError(t, err)
		p := claimTen
		p.Rows = 1
		require.Len(t, q.rows(q.Claim(p)), 1)
		require.NotNil(t, q.rows(q.NextDue(sqlbatch.Heads{}))[0][0])
		_, err = tx.ExecContext(ctx, "UPDATE dbo.chanq__queues SET paused = 1")
		require.NoError(t, err)
		require.Empty(t, q.rows(q.Claim(claimTen)), "a Pause takes effect before its commit")
		require.NoError(t, tx.Rollback())
		require.Len(t, q.rows(q.Claim(claimTen)), 1)
	})
}
