package pgnotify

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	class         = 0x63686e71 // 'chnq', of all locks
	listenerSlots = 4          // of a queue
	channels      = "chnq_"    // begins the names of channels

	// inTransit is how long after the release of a slot a notification counts as sent to this process, which passes it on. A later
	// notification is for the process that holds the slot at that time.
	inTransit = 20 * time.Millisecond
)

// retries are the pauses between tries to find a free listener slot. A sender briefly locks free slots, so a single failure is not
// significant.
var retries = []time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second, 30 * time.Second}

// leastRetry is the least time between tries that new consumers cause.
const leastRetry = 250 * time.Millisecond

// waitedQueue is a plain queue for which this process listens. mu of the Notifier guards all fields. Only the listener changes slot and
// listening.
type waitedQueue struct {
	queue   string
	base    int32 // of its locks
	waiters []*waiter
	next    int // the waiter to wake next

	slot      int       // the listener slot that this process holds; -1: none
	listening int       // the slot whose channel the session listens to; -1: none
	tried     time.Time // when a slot was last tried
	tryAt     time.Time
	failures  int
	left      time.Time // when the slot was released
	passOn    int       // messages of notifications that no waiter of this process received
}

// baseOf returns the first of a queue's lock numbers: 29 bits of a hash, and 3 bits for the number of a slot.
func baseOf(queue string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(queue))
	return int32(h.Sum32() &^ 7)
}

// channelOf returns the channel of a slot. Only the process that holds the slot listens to it.
func channelOf(base int32, slot int) string {
	return channels + strconv.Itoa(int(base)+slot)
}

// Listen implements chanq.Notifier. It returns immediately. The first value arrives when a listener slot is taken, or for an ordered
// queue when the session listens.
func (b *Notifier) Listen(queue string, slots []int) (<-chan struct{}, func()) {
	if slots != nil {
		return b.listenAsOwner(queue, slots)
	}
	w := &waiter{woken: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(w.woken)
		return w.woken, func() {}
	}
	l := b.plain[queue]
	if l == nil {
		l = &waitedQueue{queue: queue, base: baseOf(queue), slot: -1, listening: -1}
		b.plain[queue] = l
	}
	l.waiters = append(l.waiters, w)
	switch {
	case l.slot >= 0 && l.listening == l.slot:
		w.notify()
	case l.slot < 0:
		l.failures, l.tryAt = 0, l.tried.Add(leastRetry)
		b.kick()
	}
	if !b.listens {
		b.listens = true
		b.joined.Go(b.listen)
	}
	return w.woken, func() { b.leave(l, w) }
}

// leave removes a waiter. A notification that it did not receive is passed on.
func (b *Notifier) leave(l *waitedQueue, w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range l.waiters {
		if l.waiters[i] != w {
			continue
		}
		l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
		select {
		case <-w.woken:
			if len(l.waiters) > 0 {
				l.wake(1)
			} else {
				l.passOn++
			}
		default:
		}
		if len(l.waiters) == 0 {
			b.kick()
		}
		return
	}
}

// kick interrupts the wait of the listener, which then calls todo. mu is held.
func (b *Notifier) kick() {
	b.dirty = true
	if b.interrupt != nil {
		b.interrupt()
	}
}

// wake notifies n of the waiters in turn. It skips waiters that already have a notification.
func (l *waitedQueue) wake(n int) {
	for range l.waiters {
		if n == 0 {
			return
		}
		l.next = (l.next + 1) % len(l.waiters)
		if l.waiters[l.next].notify() {
			n--
		}
	}
}

// notify notifies the waiter, and reports whether it had no notification before.
func (w *waiter) notify() bool {
	select {
	case w.woken <- struct{}{}:
		return true
	default:
		return false
	}
}

// received wakes the waiters that a notification is for, or passes it on if there are none.
func (b *Notifier) received(channel string, messages int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.plain {
		switch {
		case l.listening < 0 || channelOf(l.base, l.listening) != channel:
		case l.slot == l.listening && len(l.waiters) > 0:
			l.wake(messages)
		case l.slot == l.listening || time.Since(l.left) < inTransit:
			l.passOn += messages
			b.dirty = true
		}
	}
}

// disconnect ends all waiters, because the connection is lost and with it the listener slots. If the connection was just old, they
// wait for the next one, which wakes them when it listens: they poll for messages that were sent in between.
func (b *Notifier) disconnect(old bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.plain {
		if !old && (l.slot >= 0 || b.replacing) {
			for _, w := range l.waiters {
				close(w.woken)
			}
			l.waiters = nil
		}
		l.slot, l.listening = -1, -1
		l.failures, l.tryAt = 0, time.Time{}
	}
	b.disconnectOwners(old)
	b.dirty, b.replacing = true, old
}

// job is a statement for the listener.
type job struct {
	text string
	asks bool        // it returns a number
	done func(n int) // called when it has succeeded
}

// todo returns the next statement. If there is none, it returns how long there is nothing to do and whether the session holds a
// listener slot.
func (b *Notifier) todo(now time.Time) (next job, wait time.Duration, holds bool) {
	passOn := map[string]int{}
	defer func() {
		for queue, n := range passOn {
			b.add(queue, pending{messages: n})
		}
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	if next, wait, holds = b.todoOwners(now); next.text != "" {
		return next, wait, holds
	}
	for _, l := range b.plain {
		holds = holds || l.slot >= 0
		if l.passOn > 0 && !(l.slot >= 0 && len(l.waiters) == 0) { // otherwise it would return to this process
			passOn[l.queue], l.passOn = l.passOn, 0
		}
		left := mostWait
		switch {
		case l.slot >= 0 && len(l.waiters) == 0:
			return b.release(l), 0, true
		case l.slot >= 0 && l.listening != l.slot:
			return b.listenSlot(l), 0, true
		case l.slot < 0 && len(l.waiters) > 0:
			if left = l.tryAt.Sub(now); left <= 0 {
				return b.acquire(l, now), 0, holds
			}
		}
		switch {
		case l.slot >= 0:
		case l.listening >= 0:
			until := l.left.Add(b.pace.lingers).Sub(now)
			switch {
			case until > 0:
				left = min(left, until)
			case b.shares(l):
				l.listening, left = -1, 0
			default:
				return b.unlisten(l), 0, holds
			}
		case len(l.waiters) == 0 && l.passOn == 0:
			delete(b.plain, l.queue)
		}
		wait = min(wait, left)
	}
	return job{}, wait, holds
}

// acquire takes the first free listener slot. mu is held.
func (b *Notifier) acquire(l *waitedQueue, now time.Time) job {
	text := fmt.Sprintf("SELECT i FROM generate_series(0, %d) AS i WHERE pg_try_advisory_lock(%d, (%d)::int + i) LIMIT 1", listenerSlots-1, class, l.base)
	return job{text, true, b.with(func(slot int) {
		l.tried = now
		if slot < 0 { // no slot was free
			pause := retries[min(l.failures, len(retries)-1)]
			l.failures++
			l.tryAt = now.Add(pause*3/4 + rand.N(pause/2))
			return
		}
		l.slot, l.failures = slot, 0
		if l.listening == slot {
			l.wakeAll()
		}
	})}
}

// listenSlot listens to the channel of the slot, and wakes all waiters: they poll for messages that were sent before. mu is held.
func (b *Notifier) listenSlot(l *waitedQueue) job {
	text, slot := "LISTEN "+quoted(channelOf(l.base, l.slot)), l.slot
	if l.listening >= 0 && !b.shares(l) {
		text += "; UNLISTEN " + quoted(channelOf(l.base, l.listening))
	}
	return job{text, false, b.with(func(int) {
		l.listening = slot
		l.wakeAll()
	})}
}

// release releases the slot. A later Listen acquires another one. mu is held.
func (b *Notifier) release(l *waitedQueue) job {
	text := fmt.Sprintf("SELECT pg_advisory_unlock(%d, (%d)::int + %d)", class, l.base, l.slot)
	l.slot, l.left, l.tryAt = -1, time.Now(), time.Time{}
	return job{text, false, b.with(func(int) { l.left = time.Now() })}
}

// unlisten ends the LISTEN of a slot that was released. mu is held.
func (b *Notifier) unlisten(l *waitedQueue) job {
	return job{"UNLISTEN " + quoted(channelOf(l.base, l.listening)), false, b.with(func(int) { l.listening = -1 })}
}

// shares reports whether another queue with the same hash uses the same channel and slot: one session may hold the lock twice. mu is
// held.
func (b *Notifier) shares(l *waitedQueue) bool {
	for _, other := range b.plain {
		if other != l && other.base == l.base && other.listening == l.listening {
			return true
		}
	}
	return false
}

// quoted returns the name of a channel for a statement.
func quoted(channel string) string { return pgx.Identifier{channel}.Sanitize() }

func (l *waitedQueue) wakeAll() {
	for _, w := range l.waiters {
		w.notify()
	}
}

// with returns f, which runs under mu.
func (b *Notifier) with(f func(int)) func(int) {
	return func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		f(n)
	}
}

// waits registers interrupt, which ends a wait when there is work. It returns false if there is already work.
func (b *Notifier) waits(interrupt context.CancelFunc) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirty {
		b.dirty = false
		return false
	}
	b.interrupt = interrupt
	return true
}

// waited unregisters the interrupt of waits. The listener calls todo after it.
func (b *Notifier) waited() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interrupt, b.dirty = nil, false
}
