package guarantees

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/chaos/record"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Helpers for tests of ordered queues.

// keys creates an ordered queue.
func (w *world) keys(cfg chanq.Config) *chanq.Queue[string] {
	w.Helper()
	cfg.Kind = chanq.KindOrdered
	if cfg.Slots == 0 {
		cfg.Slots = 4
	}
	return w.Queue("work", cfg)
}

// keyed returns numbered messages of a key.
func keyed(key string, from, to int) (ms []chanq.Message[string]) {
	for i := from; i <= to; i++ {
		ms = append(ms, chanq.Message[string]{Key: key, Body: fmt.Sprint(key, "/", i)})
	}
	return ms
}

// next receives one message and requires its body.
func (w *world) next(c *chanq.Consumer[string], body string) *chanq.Lease[string] {
	w.Helper()
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, body, l.Body)
	return l
}

// closed sends a message of another key and receives it. Messages of the closed key were not
// delivered before it, although they had more time.
func (w *world) closed(q *chanq.Queue[string], c *chanq.Consumer[string]) {
	w.Helper()
	for i, found := 0, 0; found < 3; i++ {
		key := fmt.Sprint("other", i)
		if slot := sqlbatch.SlotOf(key, chanq.ID{}, 4); slot == sqlbatch.SlotOf("hot", chanq.ID{}, 4) {
			continue // this slot might be stalled
		}
		found++
		testdb.Send(w, q, chanq.Message[string]{Key: key, Body: "other"})
		require.NoError(w, w.next(c, "other").Ack())
		require.NoError(w, c.Flush(w.Soon()))
	}
}

func (w *world) ack(l *chanq.Lease[string]) {
	w.Helper()
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.Soon()))
}

// ackAtLast receives a message and acks it, again if its lease has expired before: a short lease can, on a loaded machine.
func (w *world) ackAtLast(c *chanq.Consumer[string], body string) {
	w.Helper()
	for {
		l := w.next(c, body)
		err := l.Ack()
		if err == nil {
			err = l.Wait(w.Soon())
		}
		if err == nil {
			return
		}
		require.ErrorIs(w, err, chanq.ErrLeaseLost)
	}
}

// recorder records the handled messages.
type recorder struct {
	mu      sync.Mutex
	history *record.History
	leases  int64
	seen    map[string]bool // bodies
}

func newRecorder() *recorder {
	r := &recorder{history: record.NewHistory(0), seen: map[string]bool{}}
	r.history.Ordered, r.history.Broken = true, true
	return r
}

// note records a lease whose handler began at from and has finished; ended reports whether the ack
// is stored.
func (r *recorder) note(l *chanq.Lease[string], from time.Time, ended bool) {
	r.noteUntil(l, from, time.Now(), ended)
}

// noteUntil is note for a handler that finished at until.
func (r *recorder) noteUntil(l *chanq.Lease[string], from, until time.Time, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases++
	e := record.Event{At: from.UnixNano(), Name: l.Body, ID: l.ID, Attempt: l.Attempt, Lease: r.leases, How: record.Ack, Deadline: l.Deadline().UnixNano()}
	outcome := record.Lost
	if ended { // or its outcome is unknown, and it may be redelivered
		outcome = record.Unknown
	}
	for _, e.Kind = range []record.Kind{record.Got, record.Settling, outcome} {
		r.history.Add(1, e)
		e.At = until.UnixNano()
	}
	r.seen[l.Body] = true
}

// messages returns the number of distinct handled messages.
func (r *recorder) messages() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// handle is a handler that records its message.
func (r *recorder) handle(_ context.Context, l *chanq.Lease[string]) error {
	r.note(l, time.Now(), true)
	return nil
}

func (r *recorder) judge(w *world, sent map[string]int) {
	w.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, n := range sent {
		for i := range n {
			for _, k := range []record.Kind{record.Intended, record.Stored} {
				r.history.Add(0, record.Event{Kind: k, At: int64(i + 1), Name: record.NameOf(key, i+1)})
			}
		}
	}
	require.Empty(w, r.history.Judge().Faults)
}

// manyKeys returns each messages for each of the keys; the keys take turns.
func manyKeys(keys, each int) (ms []chanq.Message[string], sent map[string]int) {
	sent = map[string]int{}
	for i := range each {
		for k := range keys {
			key := fmt.Sprint("key", k)
			sent[key] = each
			ms = append(ms, keyed(key, i+1, i+1)...)
		}
	}
	return ms, sent
}

// emptied waits until all messages are handled and the queue is empty.
func (w *world) emptied(q *chanq.Queue[string], r *recorder, sent map[string]int) {
	w.Helper()
	n := 0
	for _, each := range sent {
		n += each
	}
	w.Eventually("all are handled", func() bool { return r.messages() >= n })
	w.requireEmpty(q)
}
