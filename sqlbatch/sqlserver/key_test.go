package sqlserver_test

import (
	"context"
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

// keyed is a message with a dedup key.
func keyed(key string) chanq.Message[int] { return chanq.Message[int]{DedupKey: key} }

// sendOne sends with a separate producer, so that it waits only for the database.
func sendOne(t *testing.T, ctx context.Context, q *chanq.Queue[int], m chanq.Message[int]) chanq.Receipt {
	t.Helper()
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	receipt, err := p.Send(ctx, m)
	require.NoError(t, err, "key %q", m.DedupKey)
	require.NoError(t, p.Close(ctx))
	return receipt
}

// leaseOne leases the message of a key.
func leaseOne(t *testing.T, ctx context.Context, q *chanq.Queue[int], key string) *testdb.Held[int] {
	t.Helper()
	sendOne(t, ctx, q, keyed(key))
	leases := testdb.Lease(t, q, 1, time.Minute)
	require.Equal(t, key, leases[0].DedupKey)
	return leases[0]
}

func TestOnlySendsOfTheSameKeyWaitForAnOpenKeyedSendTx(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, orders *chanq.Queue[int]) {
		z := leaseOne(t, ctx, orders, "z")
		tx := begin(t, ctx, q)
		_, err := orders.SendTx(ctx, tx, keyed("m"))
		require.NoError(t, err)

		for _, key := range []string{"a", "k", "p", "zz", ""} {
			require.False(t, sendOne(t, ctx, orders, keyed(key)).Duplicate, key)
		}
		require.True(t, sendOne(t, ctx, orders, keyed("z")).Duplicate)
		require.NoError(t, z.Ack())
		require.NoError(t, z.Wait(ctx))

		outcome := make(chan [][]any, 1)
		row := makeRows(1, 0)
		row[0].Key = "m"
		go func() {
			stored, _ := suite.Rows(ctx, q.DB(), q.EnqueueNew(row))
			outcome <- stored
		}()
		require.Eventually(t, func() bool { return len(waiting(q)) == 1 }, testdb.Patience, time.Millisecond, "the same key waits")
		require.NoError(t, tx.Commit())
		require.Empty(t, <-outcome, "and the message is not stored twice")
	})
}

func TestKeyedSendsDoNotWaitForAnOpenAckTxOfAKeyedMessage(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, orders *chanq.Queue[int]) {
		m := leaseOne(t, ctx, orders, "m")
		tx := begin(t, ctx, q)
		require.NoError(t, m.AckTx(ctx, tx))
		for _, key := range []string{"a", "l", "n", "z"} {
			require.False(t, sendOne(t, ctx, orders, keyed(key)).Duplicate, key)
		}
		require.NoError(t, tx.Commit())
		require.False(t, sendOne(t, ctx, orders, keyed("m")).Duplicate, "the key is free again")
	})
}

// With range locks, each of the two would wait for the key that follows its own, which the other holds.
func TestKeyedSendsAndAcksInTwoTransactionsDoNotDeadlock(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, orders *chanq.Queue[int]) {
		b, d := leaseOne(t, ctx, orders, "b"), leaseOne(t, ctx, orders, "d")
		sender, acker := begin(t, ctx, q), begin(t, ctx, q)
		_, err := orders.SendTx(ctx, sender, keyed("a"))
		require.NoError(t, err)
		require.NoError(t, d.AckTx(ctx, acker))
		_, err = orders.SendTx(ctx, sender, keyed("c"))
		require.NoError(t, err)
		require.NoError(t, b.AckTx(ctx, acker))
		require.NoError(t, sender.Commit())
		require.NoError(t, acker.Commit())
	})
}

// For a key, Find reads only columns that are in the index of keys. If it looked up the row, it would lock entry and
// row in the opposite order to an ack's.
func TestFindLocksNoRowForAKey(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		row := makeRows(1, 0)[0]
		row.Key = "k"
		q.exec(q.Enqueue([]sqlbatch.Row{row}))
		hold(t, ctx, q, row.ID)
		found, err := suite.Rows(ctx, q.DB(), q.Find(nil, []string{"k", "unknown"}))
		require.NoError(t, err)
		require.Equal(t, [][]any{{string(row.ID[:]), "k", int64(0)}}, found)
	})
}

// Both found the key free: the index rejects the second one with an error, and the send is repeated.
func TestTheIndexRejectsTheSecondOfTwoEqualKeys(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	first, second := makeRows(1, 0), makeRows(1, 0)
	first[0].Key, second[0].Key = "k", "k"
	q.exec(q.EnqueueNew(first))
	_, err := suite.Rows(ctx, q.DB(), q.Enqueue(second))
	require.Equal(t, int32(2601), numberOf(err))
	require.Equal(t, sqlbatch.Duplicate, sqlserver.Dialect.Classify(err))
	require.Empty(t, q.rows(q.EnqueueNew(second)))
}
