package guarantees

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// Messages with a time to live.
var expiring = []test{
	{"AMessageThatNobodyClaimedInTimeIsSetAsideAndNeverDelivered", expires},
	{"TryLeaseSetsExpiredMessagesAside", tryLeaseExpired},
	{"ALeaseUnderWayIsNotCutByTheEndOfItsTTL", leaseOutlivesTTL},
	{"ANackedMessageExpires", nackedExpires},
	{"ARedrivenMessageDoesNotExpire", redrivenLives},
	{"ATTLMustBeLongerThanTheDelay", ttlAndDelay},
	{"MessagesOfATransactionAndOfAPipeExpire", ttlEverywhere},
	{"ExpiredMessagesInMassesDoNotSlowClaims", manyExpired},
}

const shortTTL = 50 * time.Millisecond

// isOver waits until the TTL of a message is over by the database's clock.
func isOver[T any](w *world, q *chanq.Queue[T], id chanq.ID) {
	w.Helper()
	at := get(w, q, id).ExpiresAt
	require.False(w, at.IsZero())
	w.eventually("its time is over", func() bool {
		probe := send(w, q, chanq.Message[T]{Delay: time.Hour})[0]
		now := get(w, q, probe).EnqueuedAt
		_, err := q.Cancel(w.soon(), probe)
		require.NoError(w, err)
		return now.After(at)
	})
}

func expires(w *world) {
	var mu sync.Mutex
	var dead []chanq.DeadEvent
	q := w.queue("work", chanq.Config{Hooks: chanq.Hooks{Dead: func(e chanq.DeadEvent) {
		mu.Lock()
		defer mu.Unlock()
		dead = append(dead, e)
	}}})
	sent := send(w, q, chanq.Message[string]{Body: "late", TTL: shortTTL}, chanq.Message[string]{Body: "in time", TTL: time.Hour}, chanq.Message[string]{Body: "for ever"})
	e := get(w, q, sent[0])
	require.Equal(w, shortTTL, e.ExpiresAt.Sub(e.EnqueuedAt))
	require.True(w, get(w, q, sent[2]).ExpiresAt.IsZero())
	isOver(w, q, sent[0])
	c := start(w, q, chanq.ConsumerConfig{})
	leases := take(w, c, 2)
	require.Equal(w, []string{"in time", "for ever"}, bodies(leases))
	require.Equal(w, time.Hour, leases[0].ExpiresAt.Sub(leases[0].EnqueuedAt))
	require.Zero(w, leases[0].TTL)
	require.True(w, leases[1].ExpiresAt.IsZero())
	w.eventually("the late one is dead", func() bool { return get(w, q, sent[0]).State == chanq.StateDead })
	e = get(w, q, sent[0])
	require.Equal(w, chanq.ReasonExpired, e.LastError)
	require.Equal(w, []byte("late"), e.Body)
	require.Zero(w, e.Attempts, "it was never delivered")
	w.eventually("the hook is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(dead) == 1 && dead[0] == chanq.DeadEvent{Queue: "work", ID: sent[0], Reason: chanq.ReasonExpired}
	})
	require.Empty(w, c.C())
}

func tryLeaseExpired(w *world) {
	q := w.queue("work", chanq.Config{})
	id := send(w, q, chanq.Message[string]{Body: "late", TTL: shortTTL})[0]
	isOver(w, q, id)
	none, err := q.TryLease(w.soon(), 10, time.Minute)
	require.NoError(w, err)
	require.Empty(w, none)
	require.Equal(w, chanq.ReasonExpired, get(w, q, id).LastError)
	require.Equal(w, chanq.Stats{Dead: 1}, counted(w, q))
}

func leaseOutlivesTTL(w *world) {
	q := w.queue("work", chanq.Config{})
	id := send(w, q, chanq.Message[string]{TTL: 2 * steadyLease})[0]
	c := start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
	l := take(w, c, 1)[0]
	isOver(w, q, id)
	require.NoError(w, l.Context().Err())
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.soon()))
	require.Zero(w, counted(w, q))
}

func nackedExpires(w *world) {
	q := w.queue("work", chanq.Config{})
	id := send(w, q, chanq.Message[string]{TTL: 10 * shortLease})[0]
	l := lease(w, q, 1, time.Minute)[0]
	require.NoError(w, l.Nack(0, nil))
	isOver(w, q, id)
	none, err := q.TryLease(w.soon(), 10, time.Minute)
	require.NoError(w, err)
	require.Empty(w, none)
	e := get(w, q, id)
	require.Equal(w, chanq.ReasonExpired, e.LastError)
	require.Equal(w, 1, e.Attempts, "it was delivered once")
}

func redrivenLives(w *world) {
	q := w.queue("work", chanq.Config{})
	id := send(w, q, chanq.Message[string]{Body: "a", TTL: shortTTL})[0]
	isOver(w, q, id)
	_, err := q.TryLease(w.soon(), 1, time.Minute)
	require.NoError(w, err)
	moved, err := q.RedriveIDs(w.soon(), id)
	require.NoError(w, err)
	require.Len(w, moved, 1)
	l := lease(w, q, 1, time.Minute)[0]
	require.True(w, l.ExpiresAt.IsZero())
	require.NoError(w, l.Ack())
}

func ttlAndDelay(w *world) {
	q := w.queue("work", chanq.Config{})
	p := produce(w, q, chanq.ProducerConfig{})
	for _, m := range []chanq.Message[string]{
		{TTL: time.Minute, Delay: time.Minute},
		{TTL: time.Second, Delay: time.Minute},
	} {
		_, err := p.Send(w.soon(), m)
		require.ErrorContains(w, err, "Message.TTL")
		require.ErrorContains(w, err, "Message.Delay")
	}
	for _, ttl := range []time.Duration{-1, 101 * 365 * 24 * time.Hour} {
		_, err := p.Send(w.soon(), chanq.Message[string]{TTL: ttl})
		require.ErrorContains(w, err, "Message.TTL")
	}
	_, err := p.Send(w.soon(), chanq.Message[string]{TTL: 2 * time.Minute, Delay: time.Minute})
	require.NoError(w, err)
	require.Equal(w, chanq.Stats{Scheduled: 1}, counted(w, q))
}

func ttlEverywhere(w *world) {
	in, out := w.queue("input", chanq.Config{}), w.queue("output", chanq.Config{})
	tx, err := w.db.BeginTx(w.soon(), nil)
	require.NoError(w, err)
	receipts, err := in.SendTx(w.soon(), tx, chanq.Message[string]{TTL: time.Hour})
	require.NoError(w, err)
	require.NoError(w, tx.Commit())
	e := get(w, in, receipts[0].ID)
	require.Equal(w, time.Hour, e.ExpiresAt.Sub(e.EnqueuedAt))

	c := start(w, in, chanq.ConsumerConfig{})
	to := produce(w, out, chanq.ProducerConfig{})
	piped := make(chan error, 1)
	go func() {
		piped <- chanq.Pipe(c, to, 1, func(context.Context, *chanq.Lease[string]) ([]chanq.Message[string], error) {
			return []chanq.Message[string]{{TTL: time.Minute}}, nil
		})
	}()
	w.eventually("it is moved", func() bool { return stats(w, out).Ready == 1 })
	c.Stop()
	require.NoError(w, <-piped)
	l := lease(w, out, 1, time.Minute)[0]
	require.Equal(w, time.Minute, l.ExpiresAt.Sub(l.EnqueuedAt))
}

func manyExpired(w *world) {
	const count = 2000
	q := w.queue("work", chanq.Config{})
	ms := make([]chanq.Message[string], count)
	for i := range ms {
		ms[i].TTL = shortTTL
	}
	ids := send(w, q, ms...)
	isOver(w, q, ids[count-1])
	c := start(w, q, chanq.ConsumerConfig{})
	w.eventually("all are dead", func() bool { return stats(w, q).Dead == count })
	require.Less(w, c.Stats().Claims, int64(count/16/4), "claims grow, as if readers had taken them")
}
