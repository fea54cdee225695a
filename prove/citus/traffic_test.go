package citus_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// traffic sends messages to a queue and handles them continuously, and records their outcomes.
type traffic struct {
	mu                  sync.Mutex
	stored, handled     map[chanq.ID]int
	running             map[chanq.ID]bool
	overlaps            []chanq.ID
	lastSend, lastAck   time.Time
	worstSend, worstAck time.Duration

	stop func()
}

// start starts two senders and two handlers, which run until stop.
func start(w *testdb.World, q *chanq.Queue[string]) *traffic {
	w.Helper()
	y := &traffic{stored: map[chanq.ID]int{}, handled: map[chanq.ID]int{}, running: map[chanq.ID]bool{}, lastSend: time.Now(), lastAck: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	var senders, handlers sync.WaitGroup
	for s := range 2 {
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		senders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				r, err := p.Send(context.Background(), chanq.Message[string]{Body: fmt.Sprint(s, "/", n)})
				if err != nil {
					w.Errorf("send: %v", err)
					return
				}
				y.sent(r.ID)
				<-time.After(2 * time.Millisecond)
			}
		})
	}
	var consumers []*chanq.Consumer[string]
	for range 2 {
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Minute, PollEvery: 20 * time.Millisecond})
		consumers = append(consumers, c)
		handlers.Go(func() { _ = c.Handle(2, y.handle) })
	}
	y.stop = sync.OnceFunc(func() {
		cancel()
		senders.Wait()
		testdb.Eventually(w, "all is handled", func() bool {
			if empty, err := q.Empty(w.Soon()); err != nil || !empty {
				return false
			}
			s, err := testdb.Admin(q).Stats(w.Soon())
			return err == nil && s.Dead == 0
		})
		for _, c := range consumers {
			c.Stop()
		}
		handlers.Wait()
	})
	w.Cleanup(func() { cancel() })
	return y
}

func (y *traffic) sent(id chanq.ID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.stored[id]++
	y.worstSend, y.lastSend = max(y.worstSend, time.Since(y.lastSend)), time.Now()
}

func (y *traffic) handle(_ context.Context, l *chanq.Lease[string]) error {
	y.mu.Lock()
	if y.running[l.ID] {
		y.overlaps = append(y.overlaps, l.ID)
	}
	y.running[l.ID] = true
	y.mu.Unlock()
	err := l.Ack()
	if err == nil {
		err = l.Wait(context.Background())
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.running, l.ID)
	if err == nil {
		y.handled[l.ID]++
		y.worstAck, y.lastAck = max(y.worstAck, time.Since(y.lastAck)), time.Now()
	}
	return nil
}

// flows waits until more messages are sent and handled.
func (y *traffic) flows(w *testdb.World) {
	w.Helper()
	count := func() (int, int) {
		y.mu.Lock()
		defer y.mu.Unlock()
		return len(y.stored), len(y.handled)
	}
	stored, handled := count()
	w.Eventually("it goes on", func() bool {
		s, h := count()
		return s >= stored+50 && h >= handled+50
	})
}

// pauses returns for how long nothing was sent, and nothing acked, since the previous call.
func (y *traffic) pauses() (send, ack time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	send, ack = max(y.worstSend, time.Since(y.lastSend)), max(y.worstAck, time.Since(y.lastAck))
	y.worstSend, y.worstAck = 0, 0
	return send, ack
}

// check ends the traffic: all stored messages were handled, and none by two handlers at once. A message might be
// redelivered if an ack was in progress.
func (y *traffic) check(w *testdb.World) {
	w.Helper()
	y.stop()
	y.mu.Lock()
	defer y.mu.Unlock()
	require.Empty(w, y.overlaps)
	again := 0
	for id := range y.stored {
		require.NotZero(w, y.handled[id], "%v is lost", id)
		again += y.handled[id] - 1
	}
	w.Logf("%d messages, %d acked twice", len(y.stored), again)
}
