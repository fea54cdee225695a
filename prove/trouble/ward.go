package trouble

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/prove/testdb"
)

// Ward has two queues of a test: orders, which is put in trouble, and healthy, which is used all the time.
type Ward struct {
	*testdb.World
	Limits chanqfindings.Limits // shorter on engines with a real clock
	Queues map[string]*chanqadmin.Queue
	hooks  chanq.Hooks
	frees  []func() // end what hangs, before consumers are shut down
}

// Soon is how long after its threshold a finding may appear, and how long after the end of its fault it may last.
const Soon = 15 * time.Second

// NewWard returns a ward without queues, whose programs have hooks.
func NewWard(world *testdb.World, hooks chanq.Hooks) *Ward {
	w := &Ward{World: world, Queues: map[string]*chanqadmin.Queue{}, hooks: hooks}
	if !w.Engine.Bubble {
		w.Limits.Stuck = 3 * time.Second
	}
	return w
}

// Healthy creates the queue without trouble, sends to it every second, and handles its messages.
func (w *Ward) Healthy() {
	w.Helper()
	q := w.Queue("healthy", chanq.Config{Hooks: w.hooks})
	w.Queues["healthy"] = testdb.Admin(q)
	w.Handle(q, chanq.ConsumerConfig{}, 2, Well)
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	w.during(time.Second, func() { _, _ = p.Send(context.Background(), chanq.Message[string]{Body: "card"}) })
}

// during calls fn again and again until the test ends, or stop is called.
func (w *Ward) during(pause time.Duration, fn func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with end
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(pause):
				fn()
			}
		}
	}()
	stop = sync.OnceFunc(func() { close(end); <-ended })
	w.Cleanup(func() {
		w.Heal()
		stop()
	})
	return stop
}

// Orders creates the queue in trouble.
func (w *Ward) Orders(cfg chanq.Config) *chanq.Queue[string] {
	w.Helper()
	cfg.Hooks = w.hooks
	q := w.Queue("orders", cfg)
	w.Queues["orders"] = testdb.Admin(q)
	return q
}

// Handle starts a consumer, and waits until it is registered.
func (w *Ward) Handle(q *chanq.Queue[string], cfg chanq.ConsumerConfig, workers int, fn func(context.Context, *chanq.Lease[string]) error) {
	w.Helper()
	registered := func() int {
		list, err := testdb.Admin(q).Consumers(w.Soon())
		require.NoError(w, err)
		return len(list)
	}
	before := registered()
	c, err := q.Consume(context.Background(), cfg)
	require.NoError(w, err)
	ended := make(chan struct{})
	go func() { // ends with the consumer
		defer close(ended)
		_ = c.Handle(workers, fn)
	}()
	w.Cleanup(func() {
		w.Heal()
		for _, free := range w.frees {
			free()
		}
		_ = c.Shutdown(testdb.Soon(w))
		<-ended
	})
	testdb.Eventually(w, "the consumer is registered", func() bool { return registered() > before })
}

// Well handles every message without an error.
func Well(context.Context, *chanq.Lease[string]) error { return nil }

// Texts are n messages, of which one of ten is an invoice.
func Texts(n int) []chanq.Message[string] {
	list := make([]chanq.Message[string], n)
	for i := range list {
		list[i].Body = "invoice"
		if i%10 > 0 {
			list[i].Body = "card"
		}
	}
	return list
}
