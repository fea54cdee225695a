package guarantees

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Drivers that return from a silent network seconds after their context has ended, or that ignore
// the context.
var hangingDrivers = []test{
	{"G09_ALeaseExpiresInTimeThoughTheDriverHangs", stuckExtension},
	{"CloseIsBoundedThoughTheDriverHangs", stuckClose},
	{"ShutdownStopsTheConsumerThoughTheDriverHangsConnecting", stuckConnecting},
}

// stick blocks the operations that meant accepts until free is called, at the latest at the end of
// the test. struck is closed at the first.
func (w *world) stick(meant func(faultdb.Op) bool) (struck <-chan struct{}, free func()) {
	gate, hit := make(chan struct{}), make(chan struct{})
	var first, last sync.Once
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !meant(op) {
			return faultdb.Fault{}
		}
		first.Do(func() { close(hit) })
		return faultdb.Stick(gate)
	})
	free = func() {
		last.Do(func() {
			w.Faults.Inject(nil)
			close(gate)
		})
	}
	w.Cleanup(free)
	return hit, free
}

func (w *world) within(what string, done <-chan struct{}) {
	w.Helper()
	select {
	case <-done:
	case <-time.After(testdb.Patience):
		require.Fail(w, "this did not happen: "+what)
	}
}

func stuckExtension(w *world) {
	var mu sync.Mutex
	var lost []chanq.LeaseLostEvent
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{LeaseLost: func(e chanq.LeaseLostEvent) {
		mu.Lock()
		defer mu.Unlock()
		lost = append(lost, e)
	}}})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	st := w.Statements("work")
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 3 * steadyLease / 2, PollEvery: time.Minute})
	l := testdb.Take(w, c, 1)[0]
	struck, free := w.stick(func(op faultdb.Op) bool { return extends(op, st) })
	w.within("an extension hangs", struck)
	w.ended(l)
	require.False(w, time.Now().Before(l.Deadline()), "not before its deadline")
	free()
	w.Eventually("the consumer continues", func() bool {
		select {
		case again := <-c.C():
			return again.Attempt > 1
		default:
			return false
		}
	})
	mu.Lock()
	defer mu.Unlock()
	require.Equal(w, []chanq.LeaseLostEvent{{Queue: "work", ID: id, Attempt: 1}}, lost, "reported once")
}

func stuckClose(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 1})
	st := w.Statements("work")
	struck, free := w.stick(func(op faultdb.Op) bool { return enqueues(op, st) })
	sent := make(chan error, 1)
	go func() {
		_, err := p.Send(context.Background(), chanq.Message[string]{Body: "sent"})
		sent <- err
	}()
	w.within("an INSERT hangs", struck)
	for _, m := range testdb.Texts("a", "b") {
		p.C() <- m
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	closed := make(chan struct{})
	var err error
	go func() {
		defer close(closed)
		err = p.Close(ctx)
	}()
	w.within("Close returns", closed)
	var unsent *chanq.UnsentError[string]
	require.ErrorAs(w, err, &unsent)
	require.Len(w, unsent.Unsent, 2)
	var op *chanq.OpError
	for i, body := range []string{"a", "b"} {
		require.Equal(w, body, unsent.Unsent[i].Message.Body)
		require.ErrorIs(w, unsent.Unsent[i].Err, chanq.ErrClosed)
		require.ErrorAs(w, unsent.Unsent[i].Err, &op)
		require.False(w, op.Unknown, "no statement contained the message")
	}
	require.ErrorAs(w, <-sent, &op)
	require.True(w, op.Unknown, "a statement contains the message")
	free()
	require.NoError(w, p.Close(w.Soon()), "the goroutines end, and no message is reported twice")
	require.Zero(w, testdb.Counted(w, q), "nothing is stored afterwards")
}

func stuckConnecting(w *world) {
	q := w.Queue("work", chanq.Config{})
	w.DB.SetMaxIdleConns(-1)
	struck, _ := w.stick(func(op faultdb.Op) bool { return op.Kind == faultdb.Connect })
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.within("it tries to connect", struck)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(w, c.Shutdown(ctx), "its goroutines end")
}
