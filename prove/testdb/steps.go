package testdb

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Start starts a consumer. It is shut down when the test ends, even if it still holds leases; a World's faults end
// before.
func Start[M any](t T, q *chanq.Queue[M], cfg chanq.ConsumerConfig) *chanq.Consumer[M] {
	t.Helper()
	c, err := q.Consume(context.Background(), cfg)
	require.NoError(t, err)
	End(t, c)
	return c
}

// Reader is a consumer, also one of several shards.
type Reader[M any] interface {
	C() <-chan *chanq.Lease[M]
	Err() error
	Stop()
	Shutdown(context.Context) error
	Stats() chanq.ConsumerStats
}

// End shuts a consumer down when the test ends: see Start.
func End[M any](t T, c Reader[M]) {
	t.Cleanup(func() {
		if w, ok := t.(interface{ Heal() }); ok {
			w.Heal()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Stop()
		for l := range c.C() {
			_ = l.Release() // a lease that the test has left; its outcome is not tested
		}
		if c.Stats().Held > 0 {
			cancel() // leases that the test keeps
		}
		if c.Shutdown(ctx) != nil {
			// An abandoned call also ends, and with it its connections: a SQLite file can be removed only when no process has it
			// open.
			end, cancel := context.WithTimeout(context.Background(), Patience)
			defer cancel()
			_ = c.Shutdown(end)
		}
	})
}

// Produce returns a producer that is closed when the test ends.
func Produce[M any](t T, q *chanq.Queue[M], cfg chanq.ProducerConfig) *chanq.Producer[M] {
	t.Helper()
	p, err := q.Producer(context.Background(), cfg)
	require.NoError(t, err)
	Close(t, p)
	return p
}

// Close closes a producer when the test ends.
func Close(t T, p interface{ Close(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if p.Close(ctx) != nil { // the messages that it gave up end nevertheless
			end, cancel := context.WithTimeout(context.Background(), Patience)
			defer cancel()
			_ = p.Close(end)
		}
	})
}

// Send stores messages, one statement for all of them, and returns their IDs.
func Send[M any](t T, q *chanq.Queue[M], ms ...chanq.Message[M]) []chanq.ID {
	t.Helper()
	p := Produce(t, q, chanq.ProducerConfig{})
	ids := SendBy(t, p, ms...)
	require.NoError(t, p.Close(Soon(t)))
	return ids
}

// Sender is a producer, also one of several shards.
type Sender[M any] interface {
	SendBatch(context.Context, ...chanq.Message[M]) ([]chanq.Receipt, error)
}

// SendBy is Send with an existing producer.
func SendBy[M any](t T, p Sender[M], ms ...chanq.Message[M]) []chanq.ID {
	t.Helper()
	receipts, err := p.SendBatch(Soon(t), ms...)
	require.NoError(t, err)
	ids := make([]chanq.ID, len(receipts))
	for i, r := range receipts {
		require.False(t, r.Duplicate)
		ids[i] = r.ID
	}
	return ids
}

// Texts returns a message for each body.
func Texts(bodies ...string) []chanq.Message[string] {
	ms := make([]chanq.Message[string], len(bodies))
	for i, b := range bodies {
		ms[i].Body = b
	}
	return ms
}

// Take receives n leases.
func Take[M any](t T, c Reader[M], n int) []*chanq.Lease[M] {
	t.Helper()
	var got []*chanq.Lease[M]
	timeout := time.After(Patience)
	for len(got) < n {
		select {
		case l, open := <-c.C():
			require.True(t, open, "the channel closed after %d of %d leases: %v", len(got), n, c.Err())
			got = append(got, l)
		case <-timeout:
			require.Fail(t, "no more leases", "%d of %d", len(got), n)
		}
	}
	return got
}

// Held is a lease whose settles return their outcome.
type Held[M any] struct{ *chanq.Lease[M] }

func (h *Held[M]) Ack() error             { return h.outcome(h.Lease.Ack()) }
func (h *Held[M]) Nack(cause error) error { return h.outcome(h.Lease.Nack(cause)) }
func (h *Held[M]) Release() error         { return h.outcome(h.Lease.Release()) }

func (h *Held[M]) outcome(err error) error {
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return h.Wait(ctx)
}

// Leases returns the leases of Held.
func Leases[M any](held []*Held[M]) []*chanq.Lease[M] {
	leases := make([]*chanq.Lease[M], len(held))
	for i, h := range held {
		leases[i] = h.Lease
	}
	return leases
}

var errOver = errors.New("the test is over")

// Lease leases exactly n messages for d, as soon as they exist. They belong to a separate consumer, which extends no
// lease, claims no more messages, and does not end before the test. The holder of an expired lease can therefore still
// try to settle it.
func Lease[M any](t T, q *chanq.Queue[M], n int, d time.Duration) []*Held[M] {
	t.Helper()
	c, err := q.Consume(context.Background(), chanq.ConsumerConfig{Prefetch: n, LeaseFor: d, MaxExtend: 100 * time.Millisecond, DrainFor: 1000 * time.Hour})
	require.NoError(t, err)
	leases, over, handled := make(chan *chanq.Lease[M], n), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(handled)
		_ = c.Handle(n, func(_ context.Context, l *chanq.Lease[M]) error {
			leases <- l
			<-over
			return chanq.Snooze(0, errOver) // for leases that the test has not settled
		})
	}()
	t.Cleanup(func() {
		if w, ok := t.(interface{ Heal() }); ok {
			w.Heal()
		}
		close(over)
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Shutdown(end)
		<-handled
	})
	got := make([]*Held[M], n)
	for i := range got {
		got[i] = &Held[M]{Receive(t, leases, "a message that is ready")}
	}
	c.Stop()
	for l := range c.C() {
		_ = l.Release()
	}
	require.NoError(t, c.Flush(Soon(t)))
	slices.SortStableFunc(got, func(a, b *Held[M]) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.DueAt.Compare(b.DueAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return got
}

// RequireNone requires that a consumer would get no message, and dead-letters expired and exhausted ones.
func RequireNone[M any](t T, q *chanq.Queue[M], note ...any) {
	t.Helper()
	c := Start(t, q, chanq.ConsumerConfig{StopWhenIdle: true})
	for l := range c.C() {
		require.Fail(t, "there is a message", "%v %v", l.Body, note)
	}
	require.NoError(t, c.Err())
	require.NoError(t, c.Shutdown(Soon(t)))
}

// Bodies returns the bodies of leases, in their order.
func Bodies[M any](leases []*chanq.Lease[M]) []M {
	out := make([]M, len(leases))
	for i, l := range leases {
		out[i] = l.Body
	}
	return out
}

// IDs returns the IDs of leases, sorted.
func IDs[M any](leases []*chanq.Lease[M]) []chanq.ID {
	out := make([]chanq.ID, len(leases))
	for i, l := range leases {
		out[i] = l.ID
	}
	slices.SortFunc(out, func(a, b chanq.ID) int { return slices.Compare(a[:], b[:]) })
	return out
}

// Get returns a message.
func Get[M any](t T, q *chanq.Queue[M], id chanq.ID) chanqadmin.Entry {
	t.Helper()
	e, err := Admin(q).Get(Soon(t), id)
	require.NoError(t, err)
	return e
}

// Stats returns the counts of a queue.
func Stats[M any](t T, q *chanq.Queue[M]) chanqadmin.Stats {
	t.Helper()
	s, err := Admin(q).Stats(Soon(t))
	require.NoError(t, err)
	return s
}

// Empty reports whether the queue has no live message. On SQL Server false might also mean that a transaction which has
// written to the queue is open, so a test that expects true waits for it.
func Empty(t T, q interface {
	Empty(context.Context) (bool, error)
}) bool {
	t.Helper()
	empty, err := q.Empty(Soon(t))
	require.NoError(t, err)
	return empty
}

// Counted returns Stats without the values that depend on time.
func Counted[M any](t T, q *chanq.Queue[M]) chanqadmin.Stats {
	t.Helper()
	s := Stats(t, q)
	s.OldestReady, s.Limit, s.About = 0, 0, chanqadmin.Estimates{}
	return s
}
