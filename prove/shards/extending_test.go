package shards_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// TestMaxExtendCountsFromTheHandler: one worker serves three shards, so the next message of a shard waits for longer than MaxExtend, first
// in the buffer and then between the buffer and the worker.
func TestMaxExtendCountsFromTheHandler(t *testing.T) {
	onBubbles(t, func(w *world) {
		q := w.queue(chanq.Config{})
		for shard := range count {
			w.send(q, of(q, shard, 4, "m")...)
		}
		c := w.start(q, chanq.ConsumerConfig{MaxExtend: 9 * time.Second, LeaseFor: time.Second, DrainFor: time.Minute})
		calls := 0
		go func() {
			time.Sleep(4 * count * 8 * time.Second)
			c.Stop()
		}()
		require.NoError(w, c.Handle(1, func(ctx context.Context, _ *chanq.Lease[string]) error {
			calls++
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(8 * time.Second):
				return nil
			}
		}))
		require.Equal(w, 4*count, calls)
		require.Zero(w, c.Stats().Lost)
		require.Zero(w, w.counted(q), "each message was handled once")
	})
}

// TestAStuckReaderKeepsLeasesOfAllShardsForTwiceMaxExtendAtMost: messages in the buffer of a shard are released uncounted. The lease of
// each shard that waits between its buffer and the reader expires.
func TestAStuckReaderKeepsLeasesOfAllShardsForTwiceMaxExtendAtMost(t *testing.T) {
	onBubbles(t, func(w *world) {
		q := w.queue(chanq.Config{})
		for shard := range count {
			w.send(q, of(q, shard, 2, "m")...)
		}
		c := w.start(q, chanq.ConsumerConfig{MaxExtend: 9 * time.Second, LeaseFor: time.Second})
		require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
		attempts := func() (sum int) {
			for _, e := range w.stored(q, chanqadmin.StateLeased) {
				sum += e.Attempts
			}
			return sum
		}
		time.Sleep(16 * time.Second)
		require.Equal(w, 2*count-1, attempts())
		time.Sleep(5 * time.Second)
		require.Equal(w, 2*count, attempts(), "those outside the buffers are leased again, and count a second attempt; the others wait for them")
	})
}
