package shards_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMessagesAreSpreadAndEachIsHandledOnce(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{})
		p := w.produce(q, chanq.ProducerConfig{BatchRows: 20})
		var all []chanq.Message[string]
		batch := bodies("batch", 120)
		receipts, err := p.SendBatch(w.soon(), batch...)
		require.NoError(w, err)
		for i, r := range receipts {
			e, _ := w.find(q, r.ID)
			require.Equal(w, batch[i].Body, string(e.Body), "the receipts are in the order of the messages")
		}
		keyed := bodies("key", 60)
		for i := range keyed {
			keyed[i].DedupKey = fmt.Sprint("k", i)
		}
		_, err = p.SendBatch(w.soon(), keyed...)
		require.NoError(w, err)
		through := bodies("channel", 60)
		for _, m := range through {
			p.C() <- m
		}
		require.NoError(w, p.Flush(w.soon()))
		single := bodies("single", 9)
		for _, m := range single {
			_, err := p.Send(w.soon(), m)
			require.NoError(w, err)
		}
		all = slices.Concat(batch, keyed, through, single)
		require.Equal(w, len(all), w.counted(q).Ready)
		for i := range count {
			ready := testdb.Counted(w, w.shard(q, i)).Ready
			require.Greater(w, ready, len(all)/6, "shard %d", i)
		}
		c, y := w.handle(q, chanq.ConsumerConfig{})
		testdb.Eventually(w, "all are handled", func() bool { return y.has(all) })
		require.NoError(w, c.Flush(w.soon()))
		y.once(w)
		require.EqualValues(w, len(all), c.Stats().Acked)
		require.Zero(w, w.counted(q))
	})
}

func TestARepeatedSendIsADuplicate(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{})
		p := w.produce(q, chanq.ProducerConfig{})
		own := chanq.NewID()
		for _, m := range []chanq.Message[string]{{Body: "none"}, {Body: "key", DedupKey: "k"}, {Body: "id", ID: own}, {Body: "both", DedupKey: "b", ID: chanq.NewID()}} {
			first, err := p.Send(w.soon(), m)
			require.NoError(w, err)
			if m.DedupKey == "" {
				m.ID = first.ID
			}
			for range 5 {
				again, err := p.Send(w.soon(), m)
				require.NoError(w, err)
				require.Equal(w, first.ID, again.ID)
			}
		}
		require.Equal(w, 4, w.counted(q).Ready)
	})
}

func TestIDsNameTheirShard(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		p := w.produce(q, chanq.ProducerConfig{})
		for range 30 {
			r, err := p.Send(w.soon(), chanq.Message[string]{Body: "a"})
			require.NoError(w, err)
			_, shard := w.find(q, r.ID)
			require.Equal(w, shard, q.ShardOf(chanq.Message[string]{ID: r.ID}))
		}
		require.Equal(w, -1, q.ShardOf(chanq.Message[string]{}), "the message has no fixed shard")
	})
}

// TestReadersTakeFromEachShardInTurn has one shard with few and one with many messages. It reads only while a lease of each shard waits for
// a reader.
func TestReadersTakeFromEachShardInTurn(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		w.send(q, of(q, 0, 500, "much")...)
		few := of(q, 1, 12, "few") // as many as a first claim returns
		w.send(q, few...)
		c := w.start(q, chanq.ConsumerConfig{Prefetch: 80, LeaseFor: time.Minute})
		testdb.Eventually(w, "all of the few are claimed", func() bool { return testdb.Counted(w, w.shard(q, 1)).Leased == len(few) })
		_ = c.C()
		found := 0
		for read := range 2*len(few) + 6 {
			testdb.Eventually(w, "leases wait for a reader", func() bool {
				s := c.Stats()
				waiting := 2
				if found == len(few) {
					waiting = 1
				}
				return s.Held-s.Buffered == read+waiting
			})
			if l := <-c.C(); q.Origin(l) == 1 {
				found++
			}
		}
		require.Equal(w, len(few), found)
	})
}

func TestUndeliveredMessagesAreReleasedOnStop(t *testing.T) {
	onEach(t, func(w *world) {
		const n = 150
		q := w.queue(chanq.Config{})
		for i := range count {
			w.send(q, of(q, i, n/count, "a")...)
		}
		c := w.start(q, chanq.ConsumerConfig{Prefetch: 60, LeaseFor: time.Minute})
		l := <-c.C()
		testdb.Eventually(w, "some messages are buffered, and one of each shard waits for a reader", func() bool {
			s := c.Stats()
			return s.Buffered > count && s.Held-s.Buffered == 1+count
		})
		c.Stop()
		testdb.Eventually(w, "all except the delivered message are released", func() bool { return w.counted(q).Ready == n-1 })
		require.NoError(w, l.Ack())
		require.NoError(w, c.Shutdown(w.soon()))
		for i := range count {
			shard := w.shard(q, i)
			for _, l := range testdb.Lease(w, shard, testdb.Counted(w, shard).Ready, time.Minute) {
				require.Equal(w, 1, l.Attempt, "the attempt is not counted")
				require.NoError(w, l.Ack())
			}
		}
	})
}

func TestShutdownReleasesWhatReadersHoldOfAllShards(t *testing.T) {
	onEach(t, func(w *world) {
		const n = 30
		q := w.queue(chanq.Config{})
		p := w.produce(q, chanq.ProducerConfig{BatchRows: 5})
		testdb.SendBy(w, p, bodies("a", n)...)
		c := w.start(q, chanq.ConsumerConfig{})
		held := testdb.Take(w, c, n/2)
		over, cancel := context.WithCancel(context.Background())
		cancel()
		require.ErrorContains(w, c.Shutdown(over), "settles not confirmed: 0")
		require.Equal(w, n, w.counted(q).Ready)
		require.ErrorIs(w, held[0].Ack(), chanq.ErrLeaseLost)
		require.NoError(w, c.Shutdown(w.soon()))
	})
}
