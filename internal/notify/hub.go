package notify

import (
	"database/sql"
	"math"
	"slices"
	"sync"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// Key identifies a queue within this process. A queue that is opened twice on one *sql.DB has the same Key.
type Key struct {
	DB            *sql.DB
	Schema, Queue string
}

// hub has the consumers of this process.
var hub struct {
	mu      sync.Mutex // guards waiters and their fields; held briefly
	waiters map[Key][]*Waiter
}

// Waiter is a consumer that waits for messages of a queue. It is safe for concurrent use.
type Waiter struct {
	key   Key
	woken chan struct{} // of capacity 1

	// Guarded by hub.mu.
	places  sqlbatch.Heads // the lowest places released since the last call of Heard
	hurried bool           // Wake was called
}

// NoPlace is greater than all places.
var NoPlace = sqlbatch.Heads{{Due: math.MaxInt64}, {Due: math.MaxInt64}, {Due: math.MaxInt64}, {Due: math.MaxInt64}}

// Lowest returns the lower of two places for each priority.
func Lowest(a, b sqlbatch.Heads) sqlbatch.Heads {
	for i := range a {
		if b[i].Compare(a[i]) < 0 {
			a[i] = b[i]
		}
	}
	return a
}

// Wait returns a new Waiter of the queue.
func (k Key) Wait() *Waiter {
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if hub.waiters == nil {
		hub.waiters = map[Key][]*Waiter{}
	}
	w := &Waiter{key: k, woken: make(chan struct{}, 1), places: NoPlace}
	hub.waiters[k] = append(hub.waiters[k], w)
	return w
}

// Close removes the Waiter: it is not woken any more.
func (w *Waiter) Close() {
	hub.mu.Lock()
	defer hub.mu.Unlock()
	rest := slices.DeleteFunc(hub.waiters[w.key], func(o *Waiter) bool { return o == w })
	if hub.waiters[w.key] = rest; len(rest) == 0 {
		delete(hub.waiters, w.key)
	}
}

// Woken has a value if Signal or Wake was called since the last receive.
func (w *Waiter) Woken() <-chan struct{} { return w.woken }

// Heard returns the lowest places that were released since the last call, and whether Wake was called.
func (w *Waiter) Heard() (places sqlbatch.Heads, hurried bool) {
	hub.mu.Lock()
	defer hub.mu.Unlock()
	places, hurried = w.places, w.hurried
	w.places, w.hurried = NoPlace, false
	return places, hurried
}

func (k Key) each(f func(*Waiter)) {
	hub.mu.Lock()
	defer hub.mu.Unlock()
	for _, w := range hub.waiters[k] {
		f(w)
	}
}

// Signal wakes idle consumers: a message is due now.
func (k Key) Signal() { k.each(func(w *Waiter) { base.Signal(w.woken) }) }

// Wake is Signal for messages that might have been due for a long time.
func (k Key) Wake() { k.each(func(w *Waiter) { w.hurried = true; base.Signal(w.woken) }) }

// Signals wakes the consumers of a queue: those of this process and, by the Notifier, those of others.
type Signals struct {
	Key       Key
	Debouncer Debouncer
}

// Signal wakes consumers because messages are due now. slots has their slots on an ordered queue. more means that
// others follow.
func (s *Signals) Signal(messages int, slots Slots, more bool) {
	s.Key.Signal()
	s.Debouncer.Notify(messages, slots, more)
}

// Wake makes all idle consumers poll immediately, also for messages that might have been due for a long time.
func (s *Signals) Wake() {
	s.Key.Wake()
	s.Debouncer.Notify(0, AnySlot, false)
}

// Lower notes that there are messages at these places again. It wakes no consumer.
func (k Key) Lower(places sqlbatch.Heads) {
	k.each(func(w *Waiter) { w.places = Lowest(w.places, places) })
}
