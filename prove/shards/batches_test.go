package shards_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// TestOneBadMessageOfABatchFailsAloneInItsShard acks batches in transactions of their shards.
func TestOneBadMessageOfABatchFailsAloneInItsShard(t *testing.T) {
	for name, cfg := range map[string]chanq.Config{"plain": {}, "ordered": ordered} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(w *world) { badOfBatch(w, cfg) })
		})
	}
}

func badOfBatch(w *world, cfg chanq.Config) {
	const each = 20
	q := w.queue(cfg)
	bad := ""
	for shard := range count {
		ms := keyed(q, cfg, shard, each)
		bad = ms[each/2].Body // a message of the last shard
		w.send(q, ms...)
	}
	c := w.start(q, chanq.ConsumerConfig{LeaseFor: time.Hour, Backoff: chanq.ExponentialBackoff(time.Hour, time.Hour)})
	var calls atomic.Int64
	var y tally
	ended := make(chan error, 1)
	go func() {
		ended <- c.HandleBatches(1, each, time.Minute, func(ctx context.Context, batch []*chanq.Lease[string]) error {
			calls.Add(1)
			err := chanq.InTx(ctx, w.places[q.Origin(batch[0])].DB, func(ctx context.Context, tx *sql.Tx) error {
				if slices.ContainsFunc(batch, func(l *chanq.Lease[string]) bool { return l.Body == bad }) {
					return errors.New("a bad row")
				}
				return chanq.AckTx(ctx, tx, batch...) // all of one shard
			})
			for _, l := range batch {
				if err == nil {
					y.add(l.Body)
				}
			}
			return err
		})
	}()
	testdb.Eventually(w, "all others are acked", func() bool { return w.counted(q) == chanqadmin.Stats{Scheduled: 1} })
	c.Stop()
	require.NoError(w, testdb.Receive(w, ended, "it returns"))
	left := w.stored(q, chanqadmin.StateScheduled)
	require.Equal(w, 1, left[0].Attempts)
	require.Contains(w, left[0].LastError, "a bad row")
	require.EqualValues(w, count*each, c.Stats().Claimed, "each message was claimed once")
	require.Len(w, y.seen, count*each-1)
	y.once(w)
	require.EqualValues(w, count+each, calls.Load(), "each batch, and then each message of one batch")
}

func TestHandleBatchesOfShardsChecksItsArguments(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		c := w.start(q, chanq.ConsumerConfig{})
		fn := func(context.Context, []*chanq.Lease[string]) error { return nil }
		require.ErrorContains(w, c.HandleBatches(0, 1, 0, fn), "handle batches orders: workers is 0: must be at least 1")
		require.ErrorContains(w, c.HandleBatches(1, 0, 0, fn), "maxBatch is 0: must be at least 1")
		require.ErrorContains(w, c.HandleBatches(1, 1, -1, fn), "wait is -1ns: must not be negative")
		require.ErrorContains(w, c.HandleBatches(1, 1, 0, nil), "fn must not be nil")
		require.ErrorContains(w, c.Handle(0, nil), "handle orders: workers is 0: must be at least 1")
		around := func(ctx context.Context, _ *chanq.Delivery, next func(context.Context) error) error { return next(ctx) }
		with := w.start(q, chanq.ConsumerConfig{Middleware: []chanq.Middleware{around}})
		require.ErrorContains(w, with.HandleBatches(1, 1, 0, fn), "ConsumerConfig.Middleware")
		require.NoError(w, c.Err())
		select {
		case <-c.Done():
			require.Fail(w, "an invalid argument does not stop the consumer")
		default:
		}
	})
}
