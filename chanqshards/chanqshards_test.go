package chanqshards

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newQueue opens a queue over n databases in memory.
func newQueue(t *testing.T, n int, cfg chanq.Config) *Queue[string] {
	shards := make([]Shard, n)
	for i := range shards {
		db, err := embedded.Open(":memory:")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		shards[i].DB = db
	}
	require.NoError(t, Migrate(t.Context(), shards, "orders", cfg))
	q, err := Open[string](t.Context(), shards, "orders", cfg)
	require.NoError(t, err)
	return q
}

func TestLimitsAreSharedOut(t *testing.T) {
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4, MaxKeys: 14}, Label: "shop"}
	keys := 0
	for i := range 3 {
		own := Shard{Schema: "s"}.config("orders", cfg, i, 3, chanq.ID{})
		require.GreaterOrEqual(t, own.MaxKeys, 4)
		require.Equal(t, "s", own.Schema)
		require.Equal(t, []string{"shop/0", "shop/1", "shop/2"}[i], own.Label)
		keys += own.MaxKeys
	}
	require.Equal(t, 14, keys)

	q := newQueue(t, 3, chanq.Config{})
	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{Prefetch: 90, PrefetchBytes: 3000})
	require.NoError(t, err)
	require.Equal(t, 30, c.readers[0].cfg.Prefetch)
	require.Equal(t, 1000, c.readers[0].cfg.PrefetchBytes)
	require.NoError(t, c.Shutdown(t.Context()))
	for prefetch, own := range map[int]int{0: chanq.DefaultPrefetch / 3, 30: 16, 10: 10} {
		c, err := q.Consume(t.Context(), chanq.ConsumerConfig{Prefetch: prefetch})
		require.NoError(t, err)
		require.Equal(t, own, c.readers[0].cfg.Prefetch)
		require.NoError(t, c.Shutdown(t.Context()))
	}
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{BufferBytes: 3000})
	require.NoError(t, err)
	require.Equal(t, 1000, p.senders[0].cfg.BufferBytes)
	require.NoError(t, p.Close(t.Context()))
}

func TestWrongConfigsAreRefused(t *testing.T) {
	q := newQueue(t, 2, chanq.Config{})
	_, err := q.Consume(t.Context(), chanq.ConsumerConfig{Prefetch: -1, PrefetchBytes: -1})
	require.ErrorContains(t, err, "Prefetch is -1")
	require.ErrorContains(t, err, "PrefetchBytes is -1")
	require.ErrorContains(t, err, "orders/0")
	_, err = q.Producer(t.Context(), chanq.ProducerConfig{BufferBytes: -1})
	require.ErrorContains(t, err, "BufferBytes is -1")
	_, err = q.Shard(t.Context(), 2)
	require.ErrorContains(t, err, "i is 2")
}

func TestTheLeastLoadedShardIsChosenInTurn(t *testing.T) {
	var s spread
	require.Equal(t, []int{1, 2, 0, 1}, []int{s.least([]int{0, 0, 0}), s.least([]int{0, 0, 0}), s.least([]int{0, 0, 0}), s.least([]int{5, 5, 9})})
	require.Equal(t, 0, s.least([]int{1, 2, 3}))
	now := time.Now()
	_, ok := s.again(now)
	require.False(t, ok)
	s.begin(2, now.Add(time.Second))
	i, ok := s.again(now)
	require.True(t, ok)
	require.Equal(t, 0, i, "the one chosen last")
	_, ok = s.again(now.Add(2 * time.Second))
	require.False(t, ok, "it is too late")
	s.begin(1, now.Add(time.Second))
	_, _ = s.again(now)
	_, ok = s.again(now)
	require.False(t, ok, "only one more is allowed")
}

func TestACallThatPanicsDoesSoInTheCaller(t *testing.T) {
	require.Panics(t, func() { _ = each(2, func(int) error { panic("no") }) })
}

func TestTheOriginOfALeaseIsItsShard(t *testing.T) {
	q := newQueue(t, 2, chanq.Config{})
	require.Equal(t, 1, q.Origin(&chanq.Lease[string]{Delivery: chanq.Delivery{Queue: "orders/1"}}))
	require.Equal(t, -1, q.Origin(&chanq.Lease[string]{Delivery: chanq.Delivery{Queue: "others/1"}}))
	require.True(t, strings.HasPrefix(q.places[0].cfg.Label, q.Name()))
}

// TestAMessageKeepsItsFieldsWhicheverWayItIsSent and whichever shard stores it.
func TestAMessageKeepsItsFieldsWhicheverWayItIsSent(t *testing.T) {
	q := newQueue(t, 2, chanq.Config{})
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	ms := make([]chanq.Message[string], 6)
	for i := range ms {
		ms[i] = chanq.Message[string]{
			Body: fmt.Sprint("body ", i), Type: fmt.Sprint("type ", i), DedupKey: fmt.Sprint("key ", i), ID: chanq.NewID(),
			Headers: map[string]string{"number": fmt.Sprint(i)}, Priority: chanq.PriorityHigh, TTL: time.Hour,
		}
	}
	_, err = p.Send(t.Context(), ms[0])
	require.NoError(t, err)
	_, err = p.SendBatch(t.Context(), ms[1:4]...)
	require.NoError(t, err)
	p.C() <- ms[4]
	p.C() <- ms[5]
	require.NoError(t, p.Close(t.Context()))
	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{})
	require.NoError(t, err)
	var got []chanq.Message[string]
	for range ms {
		l := <-c.C()
		require.Greater(t, l.ExpiresAt, l.EnqueuedAt)
		got = append(got, chanq.Message[string]{
			Body: l.Body, Type: l.Type, DedupKey: l.DedupKey, ID: l.ID, Headers: l.Headers, Priority: l.Priority, TTL: l.ExpiresAt.Sub(l.EnqueuedAt).Round(time.Minute),
		})
		require.NoError(t, l.Ack())
	}
	require.ElementsMatch(t, ms, got)
	require.NoError(t, c.Shutdown(t.Context()))
}

// TestAnUnreadConsumerEnds: no mover was started before Shutdown.
func TestAnUnreadConsumerEnds(t *testing.T) {
	q := newQueue(t, 2, chanq.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	c, err := q.Consume(ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	cancel()
	<-c.Done()
	require.NoError(t, c.Shutdown(t.Context()))
	_, open := <-c.C()
	require.False(t, open)
	require.NoError(t, c.Err())
}

func TestStatsAddsUpEveryCount(t *testing.T) {
	var one, sum chanq.ConsumerStats
	counts := reflect.ValueOf(&one).Elem()
	for i := range counts.NumField() {
		if f := counts.Field(i); f.CanInt() {
			f.SetInt(1)
		} else {
			f.SetUint(1)
		}
	}
	add(&sum, one)
	require.Equal(t, one, sum)
}
