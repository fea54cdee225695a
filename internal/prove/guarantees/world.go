package guarantees

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// patience is how long a test waits for what must come: long enough for a
// loaded machine, and never spent where the code is right.
const patience = 30 * time.Second

// shortLease is the lease of tests that see one end, steadyLease of those where
// none may end: a loaded machine may keep the keeper waiting for a while.
const (
	shortLease  = slowness * 300 * time.Millisecond
	steadyLease = slowness * 1500 * time.Millisecond
)

func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		if time.Now().After(deadline) {
			require.Fail(w, "it never came to this: "+what)
		}
		<-tick.C
	}
}

// soon is a context for calls that must return.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

// start consumes. The consumer is shut down when the test ends, whatever it
// still holds.
func start[T any](w *world, q *chanq.Queue[T], cfg chanq.ConsumerConfig) *chanq.Consumer[T] {
	c, err := q.Consume(context.Background(), cfg)
	require.NoError(w, err)
	w.Cleanup(func() {
		w.faults.Inject(nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Stop()
		for l := range c.C() {
			_ = l.Release() // of what the test has left; its outcome is not tested
		}
		if c.Stats().Held > 0 {
			cancel() // leases that the test keeps
		}
		if c.Shutdown(ctx) != nil {
			// What was given up ends nevertheless, and with it its connections: a SQLite
			// file can be removed when nobody opens it any more.
			end, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_ = c.Shutdown(end)
		}
	})
	return c
}

func produce[T any](w *world, q *chanq.Queue[T], cfg chanq.ProducerConfig) *chanq.Producer[T] {
	p, err := q.Producer(cfg)
	require.NoError(w, err)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p
}

// send stores messages, one statement for all of them, and returns their IDs.
func send[T any](w *world, q *chanq.Queue[T], ms ...chanq.Message[T]) []chanq.ID {
	w.Helper()
	p := produce(w, q, chanq.ProducerConfig{})
	receipts, err := p.SendBatch(w.soon(), ms...)
	require.NoError(w, err)
	require.NoError(w, p.Close(w.soon()))
	ids := make([]chanq.ID, len(receipts))
	for i, r := range receipts {
		require.False(w, r.Duplicate)
		ids[i] = r.ID
	}
	return ids
}

func texts(bodies ...string) []chanq.Message[string] {
	ms := make([]chanq.Message[string], len(bodies))
	for i, b := range bodies {
		ms[i].Body = b
	}
	return ms
}

// take receives n leases.
func take[T any](w *world, c *chanq.Consumer[T], n int) []*chanq.Lease[T] {
	w.Helper()
	var got []*chanq.Lease[T]
	timeout := time.After(patience)
	for len(got) < n {
		select {
		case l, open := <-c.C():
			require.True(w, open, "the channel closed after %d of %d leases: %v", len(got), n, c.Err())
			got = append(got, l)
		case <-timeout:
			require.Fail(w, "no more leases", "%d of %d", len(got), n)
		}
	}
	return got
}

// lease claims exactly n messages for d, as soon as they are there.
func lease[T any](w *world, q *chanq.Queue[T], n int, d time.Duration) []*chanq.Lease[T] {
	w.Helper()
	var got []*chanq.Lease[T]
	w.eventually("enough messages are ready", func() bool {
		more, err := q.TryLease(w.soon(), n-len(got), d)
		require.NoError(w, err)
		got = append(got, more...)
		return len(got) == n
	})
	return got
}

func bodies[T any](leases []*chanq.Lease[T]) []T {
	out := make([]T, len(leases))
	for i, l := range leases {
		out[i] = l.Body
	}
	return out
}

func ids[T any](leases []*chanq.Lease[T]) []chanq.ID {
	out := make([]chanq.ID, len(leases))
	for i, l := range leases {
		out[i] = l.ID
	}
	slices.SortFunc(out, func(a, b chanq.ID) int { return slices.Compare(a[:], b[:]) })
	return out
}

func get[T any](w *world, q *chanq.Queue[T], id chanq.ID) chanq.Entry {
	w.Helper()
	e, err := q.Get(w.soon(), id)
	require.NoError(w, err)
	return e
}

func stats[T any](w *world, q *chanq.Queue[T]) chanq.Stats {
	w.Helper()
	s, err := q.Stats(w.soon())
	require.NoError(w, err)
	return s
}

// counted is Stats without what depends on time.
func counted[T any](w *world, q *chanq.Queue[T]) chanq.Stats {
	w.Helper()
	s := stats(w, q)
	s.OldestReady, s.Limit = 0, 0
	return s
}

// strike is a choice that strikes one operation: the first that is meant.
type strike struct {
	fault faultdb.Fault
	meant func(faultdb.Op) bool

	mu    sync.Mutex
	where string // the operation that it struck
}

func (s *strike) choose(op faultdb.Op) faultdb.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.where != "" || !s.meant(op) {
		return faultdb.Fault{}
	}
	s.where = op.String()
	return s.fault
}

// struck is the operation that was struck, "" if none was yet.
func (s *strike) struck() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.where
}

// strike has f strike the first operation that is meant.
func (w *world) strike(f faultdb.Fault, meant func(faultdb.Op) bool) *strike {
	s := &strike{fault: f, meant: meant}
	w.faults.Inject(s.choose)
	return s
}

// strikeNth strikes the operation that comes after n others, counted from now.
func (w *world) strikeNth(n int, f faultdb.Fault) *strike {
	from := w.faults.Ops()
	return w.strike(f, func(op faultdb.Op) bool { return op.N == from+n })
}

// broken cuts a connection with the engine's error, before the operation is
// applied or after.
func (w *world) broken(applied bool) faultdb.Fault {
	w.Helper()
	f := faultdb.Cut(w.failure(sqlbatch.Unknown))
	if applied {
		return f.Applied()
	}
	return f
}

// failure is the engine's error of a class.
func (w *world) failure(c sqlbatch.Class) error {
	w.Helper()
	err := w.engine.Errors[c]
	require.Error(w, err, "the engine gives no error of class %s", c)
	require.Equal(w, c, w.engine.Dialect.Classify(err))
	return err
}
