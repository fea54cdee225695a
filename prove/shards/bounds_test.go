package shards_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// TestBufferedMessagesOfAllShardsStayWithinTheirBytes: all shards together buffer PrefetchBytes,
// and one lease of each shard waits for a reader outside the buffer.
func TestBufferedMessagesOfAllShardsStayWithinTheirBytes(t *testing.T) {
	for _, kind := range []struct {
		name string
		cfg  chanq.Config
	}{{"plain", chanq.Config{}}, {"ordered", ordered}} {
		t.Run(kind.name, func(t *testing.T) {
			onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
				w := newWorld(t, sqlite, sqlite, sqlite)
				q := w.queue(kind.cfg)
				const size, most, each = 10_000, 15, 40
				for shard := range count {
					ms := keyed(q, kind.cfg, shard, each)
					for i := range ms {
						ms[i].Body = strings.Repeat("x", size-2) // with its quotes
					}
					w.send(q, ms...)
				}
				c := w.start(q, chanq.ConsumerConfig{PrefetchBytes: most * size, PollEvery: 20 * time.Millisecond, LeaseFor: time.Minute})
				_ = c.C() // from now on leases wait for a reader
				full := func() bool { return c.Stats().Held >= most+count }
				for range 2 * each {
					testdb.Eventually(w, "the consumer holds as much as it may", full)
					require.LessOrEqual(w, c.Stats().Held, most+count+1, "an acked message might still be held for a moment")
					l := testdb.Take(w, c, 1)[0]
					require.LessOrEqual(w, c.Stats().Held, most+count+1)
					require.NoError(w, l.Ack())
					require.NoError(w, l.Wait(w.soon()))
				}
				testdb.Eventually(w, "the consumer holds as much as it may", full)
				require.Never(w, func() bool { return c.Stats().Held > most+count }, 300*time.Millisecond, 5*time.Millisecond)
				require.Equal(w, most, c.Stats().Buffered)
				testdb.Take(w, c, each) // it continues when there is a reader
			})
		})
	}
}

// TestABodyLargerThanTheShareOfAShardIsDeliveredAlone: each shard buffers one message at a time.
func TestABodyLargerThanTheShareOfAShardIsDeliveredAlone(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		const each = 6
		for shard := range count {
			ms := of(q, shard, each, "large")
			for i := range ms {
				ms[i].Body = strings.Repeat("x", 10_000)
			}
			w.send(q, ms...)
		}
		c := w.start(q, chanq.ConsumerConfig{PrefetchBytes: 1000, PollEvery: 20 * time.Millisecond, LeaseFor: time.Minute})
		for range count * each {
			l := testdb.Take(w, c, 1)[0]
			require.LessOrEqual(w, c.Stats().Held, 1+2*count, "the delivered message, one buffered message of each shard, and one that waits for a reader")
			require.NoError(w, l.Ack())
			require.NoError(w, l.Wait(w.soon()))
		}
		require.NoError(w, c.Flush(w.soon()))
		require.Zero(w, w.counted(q))
	})
}
