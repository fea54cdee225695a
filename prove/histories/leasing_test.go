package histories

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// lease is a lease with its state as its holder knows it.
type lease struct {
	*chanq.Lease[string]
	name     string
	turn     int
	consumer *consumer
	state    leaseState
}

// leaseState is the state that the holder knows.
type leaseState uint8

const (
	holding leaseState = iota
	inTx
	settled
	lost
)

// lease returns the lease with number n modulo the number of leases, or nil.
func (h *history) lease(n int) *lease {
	if len(h.leases) == 0 {
		return nil
	}
	return h.leases[n%len(h.leases)]
}

// claimed compares leases with the messages that the model has claimed, and keeps them.
func (h *history) claimed(want []message, got []*chanq.Lease[string], by *consumer) {
	require.Len(h, got, len(want), "%s: claimed messages", h.ran)
	for i, m := range want {
		l := got[i]
		require.Equal(h, chanq.Message[string]{ID: m.id, Body: m.body, Priority: m.priority, DedupKey: m.key},
			chanq.Message[string]{ID: l.ID, Body: l.Body, Priority: l.Priority, DedupKey: l.DedupKey, Headers: l.Headers, Key: l.Key},
			"%s: message %d of the claim", h.ran, i)
		require.Equal(h, m.attempts, l.Attempt, "%s: attempt of %s", h.ran, m.body)
		require.Equal(h, m.due.ms, l.DueAt.UnixMilli(), "%s: due time of %s", h.ran, m.body)
		if m.expires.ms > 0 {
			require.Equal(h, m.expires.ms, l.ExpiresAt.UnixMilli(), "%s: end of %s", h.ran, m.body)
		}
		e, err := testdb.Admin(h.queue).Get(h.soon(), m.id)
		require.NoError(h, err)
		require.Equal(h, e.Fence, l.Fence, "%s: fence of the lease of %s", h.ran, m.body)
		require.Equal(h, m.enqueued.ms, l.EnqueuedAt.UnixMilli(), "%s: time of sending of %s", h.ran, m.body)
		h.leases = append(h.leases, &lease{
			Lease: l, name: fmt.Sprintf("%s/%d", m.body, m.turn), turn: m.turn, consumer: by,
		})
		h.note("leased %s, turn %d, attempt %d, lapses %d", m.body, m.turn, m.attempts, m.lapses)
	}
}

// consume starts a consumer, takes some of its messages and stops it. The other claimed messages
// are released uncounted.
type consume struct{ Take int }

func (s *consume) String() string { return fmt.Sprintf("Consume, take %d, Stop", s.Take) }

func (s *consume) run(h *history) {
	if h.crowded() {
		return
	}
	h.rescue()
	c := h.start(time.Hour)
	want := h.model.claim(firstClaim, leaseFor, c.name)
	take := min(s.Take, len(want))
	var got []*chanq.Lease[string]
	timeout := h.soon()
	for range take {
		select {
		case l, open := <-c.C():
			require.True(h, open, "%s: the channel closed: %v", h.ran, c.Err())
			got = append(got, l)
		case <-timeout.Done():
			require.Fail(h, "a message is not delivered", h.ran)
		}
	}
	h.eventually("the consumer has claimed, and the rest is buffered", func() bool {
		stats := c.Stats()
		return stats.Claims+stats.EmptyClaims > 0 && stats.Buffered == len(want)-take
	})
	waits := slices.ContainsFunc(want, func(m message) bool { return m.lapses > 0 }) // for a settle
	if s.Take > len(want) && !waits {
		h.eventually("the consumer finds no more", func() bool { return c.Stats().EmptyClaims > 0 })
	}
	h.stop(c)
	h.claimed(want[:take], got, c)
	for _, m := range want[take:] {
		h.model.release(h.model.held(m.id, m.turn))
	}
	if take == 0 {
		h.finish(c)
	}
}

// leaseFor is the lease of consumers. No step extends a lease by less; otherwise the consumer would
// immediately extend it again.
const leaseFor = time.Hour

// firstClaim is the size of a consumer's first claim.
const firstClaim = 16

// rescue ends all expired leases, as the next consumer would: the delays are random.
func (h *history) rescue() {
	st := h.clock.dialect.Queue(sqlbatch.Names{Queue: "model"})
	for p := sqlbatch.PriorityLow; p <= sqlbatch.PriorityUrgent; p++ {
		rows, err := testdb.Rows(h.soon(), h.clock.db, st.Rescue(sqlbatch.RescueParams{Priority: int8(p), MaxCrashes: maxCrashes}))
		require.NoError(h, err)
		for _, row := range rows {
			m := h.model.live[chanq.ID(row[0].([]byte))]
			require.True(h, m != nil && m.leasedBy != "" && m.lease.ms <= h.model.now, "%s: a lease that has not expired is rescued", h.ran)
			require.True(h, h.model.rescue(m, row[2].(int64)), "%s: %s is due at %d after %d expired leases", h.ran, m.body, row[2], m.lapses)
		}
	}
	for _, m := range h.model.live {
		require.False(h, m.leasedBy != "" && m.lease.ms <= h.model.now, "%s: the expired lease of %s is not rescued", h.ran, m.body)
	}
}

// crowded reports whether the first claim of a consumer would not take all ready messages. Then it
// is unknown what the consumer claims before it stops.
func (h *history) crowded() bool { return len(h.model.in(chanqadmin.StateReady)) >= firstClaim }

// start starts a consumer; failed messages are redelivered after backoff.
func (h *history) start(backoff time.Duration) *consumer {
	h.started++
	c := &consumer{name: fmt.Sprintf("c%d", h.started)}
	var err error
	c.Consumer, err = h.queue.Consume(context.Background(), chanq.ConsumerConfig{
		Name: c.name, LeaseFor: leaseFor, MaxExtend: 24 * time.Hour,
		Backoff: func(*chanq.Delivery, error) time.Duration { return backoff },
	})
	require.NoError(h, err)
	h.consumers = append(h.consumers, c)
	return c
}

// stop stops a consumer and waits until undelivered messages are released.
func (h *history) stop(c *consumer) {
	c.Stop()
	h.eventually("the buffer is released", func() bool { return c.Stats().Buffered == 0 })
	select {
	case _, open := <-c.C():
		require.False(h, open, "%s: more is delivered than should be", h.ran)
	case <-h.soon().Done():
		require.Fail(h, "the channel is not closed", h.ran)
	}
	require.NoError(h, c.Err(), h.ran)
	require.NoError(h, c.Flush(h.soon()), h.ran)
}

// finish shuts down a consumer that holds nothing.
func (h *history) finish(c *consumer) {
	require.NoError(h, c.Shutdown(h.soon()), h.ran)
	h.forget(c)
}

// forget drops a consumer and its leases.
func (h *history) forget(c *consumer) {
	for i, o := range h.consumers {
		if o == c {
			h.consumers = append(h.consumers[:i:i], h.consumers[i+1:]...)
			break
		}
	}
	var rest []*lease
	for _, l := range h.leases {
		if l.consumer != c {
			rest = append(rest, l)
		}
	}
	h.leases = rest
}

// crash ends a holder without settles: its leases expire.
type crash struct{ Lease int }

func (s *crash) String() string { return fmt.Sprintf("the holder of lease %d crashes", s.Lease) }

func (s *crash) run(h *history) {
	l := h.lease(s.Lease)
	if l == nil {
		return
	}
	h.note("it held %s", l.name)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	st := h.clock.dialect.Queue(sqlbatch.Names{Queue: "model"})
	h.sessions.faults.Inject(func(op faultdb.Op) faultdb.Fault { // the consumer releases nothing
		if testdb.Runs(op, st.Release(nil)) || testdb.Runs(op, st.SkipLocked().Release(nil)) {
			return faultdb.Fail(h.errors[sqlbatch.Permanent])
		}
		return faultdb.Fault{}
	})
	_ = l.consumer.Shutdown(gone) // its error counts the leases that it held
	err := l.consumer.Shutdown(h.soon())
	h.sessions.faults.Inject(nil)
	require.Equal(h, l.consumer.Err(), err, "%s: Shutdown returns the error of the release", h.ran)
	h.forget(l.consumer)
	h.sessions.settle(h, h.db)
}

// perish is a message that kills its holders: all ready messages are leased and the leases expire,
// repeatedly.
type perish struct{ Times int }

func (s *perish) String() string {
	return fmt.Sprintf("all is leased, and the leases run out, %d times", s.Times)
}

func (s *perish) run(h *history) {
	for range s.Times {
		before := len(h.leases)
		(&consume{maxLive}).run(h)
		if last := len(h.leases) - 1; last >= before {
			(&crash{last}).run(h)
		}
		(&advance{}).run(h)
		h.compare()
	}
}

// extend extends one lease.
type extend struct {
	Lease int
	For   time.Duration
}

func (s *extend) String() string { return fmt.Sprintf("Extend lease %d for %v", s.Lease, s.For) }

func (s *extend) run(h *history) {
	l := h.lease(s.Lease)
	if l == nil {
		return
	}
	h.note("it is %s", l.name)
	err := l.Extend(h.soon(), s.For)
	switch m := h.model.held(l.ID, l.turn); {
	case l.state == settled || l.state == inTx:
		require.ErrorIs(h, err, chanq.ErrSettled, h.ran)
	case l.state == lost || m == nil:
		require.ErrorIs(h, err, chanq.ErrLeaseLost, h.ran)
		l.state = lost
	default:
		require.NoError(h, err, h.ran)
		h.model.extend(m, s.For)
	}
}
