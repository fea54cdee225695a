package chanq

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mergedConsumer is a consumer of one shard of which nothing runs.
func mergedConsumer(t *testing.T, cfg Config) *shardConsumer[string] {
	q := openTestQueue[string](t, cfg)
	config, err := ConsumerConfig{}.withDefaults()
	require.NoError(t, err)
	stop, stopNow := context.WithCancel(context.Background())
	c, err := newShardConsumer(q.core, config, context.Background(), stop, stopNow, mergeOf[string](1, 1000))
	require.NoError(t, err)
	t.Cleanup(func() { stopNow(); c.discard() })
	return c
}

// TestALeaseThatMissedItsRecallIsGivenBack: its slot was to be given back while it was on its way
// from its line to the mover, which had looked for such before.
func TestALeaseThatMissedItsRecallIsGivenBack(t *testing.T) {
	c := mergedConsumer(t, Config{Kind: KindOrdered})
	l := &Lease[string]{lease: &lease{owner: c}} // it has no place in a line any more
	c.came(1)
	c.order.sent.Store(1)
	c.out <- l
	done := make(chan struct{})
	go func() { defer close(done); c.move(make(chan struct{})) }()
	require.Eventually(t, func() bool { return c.settler.writer.Stats().Waiting+len(c.merged.out) == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, 1, c.settler.writer.Stats().Waiting)
	require.Equal(t, settleRelease, l.lease.op)
	require.Zero(t, c.forReaders())
	require.Zero(t, c.order.sent.Load(), "no reader took it")
	close(c.out)
	<-done
}

// TestWhatIsOnItsWayIsCounted step by step: the movers of two shards send, a reader takes.
func TestWhatIsOnItsWayIsCounted(t *testing.T) {
	m := mergeOf[string](2, 1000)
	counts := func() (all [4]int) {
		all[0], all[1] = m.of(0)
		all[2], all[3] = m.of(1)
		return all
	}
	m.came(0, 3)
	m.came(1, 1)
	require.Equal(t, [4]int{3, 0, 1, 0}, counts())
	for _, shard := range []int{0, 1, 0} {
		m.out <- nil
		m.sent(shard)
	}
	require.Equal(t, [4]int{1, 2, 0, 1}, counts())
	<-m.out
	require.Equal(t, [4]int{1, 1, 0, 1}, counts(), "first in, first out")
	m.out <- nil
	<-m.out
	require.Equal(t, [4]int{1, 1, 0, 1}, counts(), "one that is sent and not noted is counted where it was")
	m.sent(0)
	require.Equal(t, [4]int{0, 2, 0, 0}, counts())
	<-m.out
	<-m.out
	require.Equal(t, [4]int{}, counts())
	for range 10_000 { // the list does not grow
		m.came(1, 1)
		m.out <- nil
		m.sent(1)
		<-m.out
		m.of(0)
	}
	require.Less(t, cap(m.line), 100)
}

func TestACallThatPanicsDoesSoWhereItIsWaitedFor(t *testing.T) {
	require.Panics(t, func() {
		_ = togetherOf(2, func(int) error { panic("no") })
	})
}

// TestCloseWaitsForTheEndOfAllShardsAtOnce: each waits until the others are at their end, too.
func TestCloseWaitsForTheEndOfAllShardsAtOnce(t *testing.T) {
	p := testProducer(t, openTestShards(t, 3), ProducerConfig{})
	arrived := make(chan struct{}, len(p.shards))
	all := make(chan struct{})
	meet := sync.OnceFunc(func() { close(all) })
	t.Cleanup(meet) // before the producer's, which waits
	for _, shard := range p.shards {
		end := shard.unrecord
		shard.unrecord = func() {
			end()
			arrived <- struct{}{}
			<-all
		}
	}
	go func() {
		for range p.shards {
			<-arrived
		}
		meet()
	}()
	require.NoError(t, p.Close(soon(t)))
	require.NoError(t, p.closed(soon(t)), "the goroutines have ended")
}

// TestAPlaceThatIsAwayIsChosenLast, though it has the least to store; and once it has nothing, so that
// somebody finds out when it is back.
func TestAPlaceThatIsAwayIsChosenLast(t *testing.T) {
	p := testProducer(t, openTestShards(t, 2), ProducerConfig{BatchRows: 100, Linger: time.Minute})
	load := func(shard, n int) {
		items := make([]pending[string], n)
		require.True(t, p.shards[shard].backlog.AddAll(n, func(i int) *pending[string] { return &items[i] }, 0))
	}
	t.Cleanup(func() {
		for _, shard := range p.shards {
			shard.backlog.Remove(func(*pending[string]) bool { return true })
		}
	})
	load(0, 50)
	p.shards[1].health.Failed(time.Now(), context.DeadlineExceeded)
	require.Equal(t, 1, p.leastLoaded(nil), "it has nothing: one tries")
	load(1, 1)
	for range 10 {
		require.Zero(t, p.leastLoaded(nil))
	}
	p.shards[1].health.Worked(time.Now())
	require.Equal(t, 1, p.leastLoaded(nil), "it is back")
}
