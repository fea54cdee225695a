package guarantees

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Messages with a time to live.
var messageTTL = []test{
	{"AMessageThatWasNotClaimedInTimeIsDeadLetteredAndNeverDelivered", expires},
	{"StopWhenIdleDeadLettersExpiredMessages", idleExpired},
	{"ALeaseIsNotShortenedByTheTTL", leaseOutlivesTTL},
	{"ANackedMessageExpires", nackedExpires},
	{"ARedrivenMessageDoesNotExpire", redrivenLives},
	{"ATTLMustBeLongerThanTheDelay", ttlAndDelay},
	{"MessagesOfATransactionAndOfAPipeExpire", ttlEverywhere},
	{"ManyExpiredMessagesDoNotSlowClaims", manyExpired},
}

const shortTTL = 50 * time.Millisecond

// isOver waits until the TTL of a message has passed by the database's clock.
func isOver[T any](w *world, q *chanq.Queue[T], id chanq.ID) {
	w.Helper()
	at := testdb.Get(w, q, id).ExpiresAt
	require.False(w, at.IsZero())
	w.Eventually("its TTL has passed", func() bool {
		probe := testdb.Send(w, q, chanq.Message[T]{Delay: time.Hour})[0]
		now := testdb.Get(w, q, probe).EnqueuedAt
		_, err := q.Cancel(w.Soon(), probe)
		require.NoError(w, err)
		return now.After(at)
	})
}

func expires(w *world) {
	var mu sync.Mutex
	var dead []chanq.DeadEvent
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Dead: func(e chanq.DeadEvent) {
		mu.Lock()
		defer mu.Unlock()
		dead = append(dead, e)
	}}})
	sent := testdb.Send(w, q, chanq.Message[string]{Body: "late", TTL: shortTTL}, chanq.Message[string]{Body: "in time", TTL: time.Hour}, chanq.Message[string]{Body: "for ever"})
	e := testdb.Get(w, q, sent[0])
	require.Equal(w, shortTTL, e.ExpiresAt.Sub(e.EnqueuedAt))
	require.True(w, testdb.Get(w, q, sent[2]).ExpiresAt.IsZero())
	isOver(w, q, sent[0])
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	leases := testdb.Take(w, c, 2)
	require.Equal(w, []string{"in time", "for ever"}, testdb.Bodies(leases))
	require.Equal(w, time.Hour, leases[0].ExpiresAt.Sub(leases[0].EnqueuedAt))
	require.True(w, leases[1].ExpiresAt.IsZero())
	w.Eventually("the expired message is dead", func() bool { return testdb.Get(w, q, sent[0]).State == chanqadmin.StateDead })
	e = testdb.Get(w, q, sent[0])
	require.Equal(w, "expired", e.LastError)
	require.Equal(w, chanq.CauseExpired, e.Cause)
	require.Empty(w, e.Fingerprint)
	require.Equal(w, []byte("late"), e.Body)
	require.Zero(w, e.Attempts, "it was never delivered")
	w.Eventually("the hook is called", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(dead) == 1 && reflect.DeepEqual(dead[0], chanq.DeadEvent{Queue: "work", ID: sent[0], Cause: chanq.CauseExpired, Reason: "expired"})
	})
	require.Empty(w, c.C())
}

func idleExpired(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, chanq.Message[string]{Body: "late", TTL: shortTTL})[0]
	isOver(w, q, id)
	testdb.RequireNone(w, q)
	require.Equal(w, "expired", testdb.Get(w, q, id).LastError)
	require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
}

func leaseOutlivesTTL(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, chanq.Message[string]{TTL: lastingLease * 5 / 4})[0]
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease})
	l := testdb.Take(w, c, 1)[0]
	isOver(w, q, id)
	require.NoError(w, l.Context().Err())
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.Soon()))
	require.Zero(w, testdb.Counted(w, q))
}

func nackedExpires(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, chanq.Message[string]{TTL: 10 * shortLease})[0]
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
	isOver(w, q, id)
	testdb.RequireNone(w, q)
	e := testdb.Get(w, q, id)
	require.Equal(w, "expired", e.LastError)
	require.Equal(w, chanq.CauseExpired, e.Cause)
	require.Empty(w, e.Fingerprint)
	require.Equal(w, 1, e.Attempts, "it was delivered once")
}

func redrivenLives(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, chanq.Message[string]{Body: "a", TTL: shortTTL})[0]
	isOver(w, q, id)
	testdb.RequireNone(w, q)
	moved := w.redriveIDs(q, id)
	require.Len(w, moved, 1)
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	require.True(w, l.ExpiresAt.IsZero())
	require.NoError(w, l.Ack())
}

func ttlAndDelay(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	for _, m := range []chanq.Message[string]{
		{TTL: time.Minute, Delay: time.Minute},
		{TTL: time.Second, Delay: time.Minute},
		{TTL: 2 * time.Millisecond, Delay: 1500 * time.Microsecond}, // also stored as 2 ms
	} {
		_, err := p.Send(w.Soon(), m)
		require.ErrorContains(w, err, "Message.TTL")
		require.ErrorContains(w, err, "Message.Delay")
	}
	for _, ttl := range []time.Duration{-1, 101 * 365 * 24 * time.Hour} {
		_, err := p.Send(w.Soon(), chanq.Message[string]{TTL: ttl})
		require.ErrorContains(w, err, "Message.TTL")
	}
	_, err := p.Send(w.Soon(), chanq.Message[string]{TTL: 2 * time.Minute, Delay: time.Minute})
	require.NoError(w, err)
	require.Equal(w, chanqadmin.Stats{Scheduled: 1}, testdb.Counted(w, q))
}

func ttlEverywhere(w *world) {
	in, out := w.Queue("input", chanq.Config{}), w.Queue("output", chanq.Config{})
	tx := w.begin(w.DB)
	receipts, err := in.SendTx(w.Soon(), tx, chanq.Message[string]{TTL: time.Hour})
	require.NoError(w, err)
	require.NoError(w, tx.Commit())
	e := testdb.Get(w, in, receipts[0].ID)
	require.Equal(w, time.Hour, e.ExpiresAt.Sub(e.EnqueuedAt))

	c := testdb.Start(w, in, chanq.ConsumerConfig{})
	piped := make(chan error, 1)
	go func() {
		piped <- chanq.Pipe(c, out, 1, func(context.Context, *chanq.Lease[string]) ([]chanq.Message[string], error) {
			return []chanq.Message[string]{{TTL: time.Minute}}, nil
		})
	}()
	w.Eventually("it is moved", func() bool { return testdb.Stats(w, out).Ready == 1 })
	c.Stop()
	require.NoError(w, <-piped)
	l := testdb.Lease(w, out, 1, time.Minute)[0]
	require.Equal(w, time.Minute, l.ExpiresAt.Sub(l.EnqueuedAt))
}

func manyExpired(w *world) {
	const count = 2000
	q := w.Queue("work", chanq.Config{})
	ms := make([]chanq.Message[string], count)
	for i := range ms {
		ms[i].TTL = shortTTL
	}
	ids := testdb.Send(w, q, ms...)
	isOver(w, q, ids[count-1])
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("all are dead", func() bool { return testdb.Stats(w, q).Dead == count })
	require.Less(w, c.Stats().Claims, int64(count/16/4), "claims grow, as if readers had taken the messages")
}
