package pgnotify

import (
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/notify"
)

// Ordered queues have no listener slots. Each process with an idle owner of slots listens on one channel. Its session holds an
// advisory lock with the same number in share mode, by which senders detect a listener. A notification contains the slots of the
// messages, and each process wakes the consumers that own one of them.

// owners is the number of that channel and lock, after those of the listener slots.
const owners = listenerSlots

// ownersLinger is how long a process listens after its last consumer has left. Consumers often leave and return.
const ownersLinger = time.Second

// mostPayload is the most bytes of slots in a notification; PostgreSQL allows 7999.
const mostPayload = 2000

// ownerQueue is an ordered queue for which this process listens. mu of the Notifier guards all fields. Only the listener changes
// live.
type ownerQueue struct {
	queue   string
	base    int32 // of its locks
	waiters []*waiter
	live    bool      // the session listens, and holds the lock
	left    time.Time // when the last waiter left
}

// waiter is a consumer that listens.
type waiter struct {
	woken chan struct{} // of capacity 1
	slots []int         // of an ordered queue, ascending
}

// listenAsOwner is Listen for an ordered queue.
func (b *Notifier) listenAsOwner(queue string, slots []int) (<-chan struct{}, func()) {
	w := &waiter{make(chan struct{}, 1), slices.Clone(slots)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(w.woken)
		return w.woken, func() {}
	}
	q := b.owners[queue]
	if q == nil {
		q = &ownerQueue{queue: queue, base: baseOf(queue)}
		b.owners[queue] = q
	}
	q.waiters = append(q.waiters, w)
	if q.live {
		w.woken <- struct{}{}
	} else {
		b.kick()
	}
	if !b.listens {
		b.listens = true
		b.joined.Go(b.listen)
	}
	return w.woken, func() { b.leaveOwners(q, w) }
}

// leaveOwners removes a waiter. A notification that it did not receive is for no other consumer.
func (b *Notifier) leaveOwners(q *ownerQueue, w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q.waiters = slices.DeleteFunc(q.waiters, func(o *waiter) bool { return o == w })
	if len(q.waiters) == 0 {
		q.left = time.Now()
		b.kick()
	}
}

// wake wakes the consumers that own one of the slots; nil: all. mu is held.
func (q *ownerQueue) wake(slots []int) {
	for _, w := range q.waiters {
		if notify.Concerns(w.slots, slots) {
			select {
			case w.woken <- struct{}{}:
			default: // it has an unreceived value
			}
		}
	}
}

// receivedOwners handles a notification of an ordered queue. It reports whether it was one.
func (b *Notifier) receivedOwners(channel, payload string) (was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.owners {
		if q.live && channelOf(q.base, owners) == channel {
			q.wake(notify.Parse(payload))
			was = true
		}
	}
	return was
}

// disconnectOwners is disconnect for ordered queues. mu is held.
func (b *Notifier) disconnectOwners(old bool) {
	for _, q := range b.owners {
		if !old && (q.live || b.replacing) {
			for _, w := range q.waiters {
				close(w.woken)
			}
			q.waiters = nil
		}
		q.live = false
	}
}

// todoOwners is todo for ordered queues. mu is held.
func (b *Notifier) todoOwners(now time.Time) (next job, wait time.Duration, listens bool) {
	wait = mostWait
	for _, q := range b.owners {
		switch {
		case len(q.waiters) > 0 && !q.live:
			return b.listenOwners(q), 0, true
		case len(q.waiters) > 0:
			listens = true
		case !q.live:
			delete(b.owners, q.queue)
		default:
			left := q.left.Add(ownersLinger).Sub(now)
			if left <= 0 {
				return b.unlistenOwners(q), 0, listens
			}
			wait = min(wait, left)
		}
	}
	return job{}, wait, listens
}

// listenOwners begins to listen. A sender that tries the lock holds it briefly, and the statement waits for that. mu is held.
func (b *Notifier) listenOwners(q *ownerQueue) job {
	text := fmt.Sprintf("LISTEN %s; SELECT pg_advisory_lock_shared(%d, (%d)::int + %d)", quoted(channelOf(q.base, owners)), class, q.base, owners)
	return job{text, false, b.with(func(int) {
		q.live = true
		q.wake(nil) // to poll for messages that were committed before
	})}
}

// unlistenOwners ends listening. mu is held.
func (b *Notifier) unlistenOwners(q *ownerQueue) job {
	q.live = false
	text := fmt.Sprintf("SELECT pg_advisory_unlock_shared(%d, (%d)::int + %d)", class, q.base, owners)
	if !b.sharesOwners(q) {
		text += "; UNLISTEN " + quoted(channelOf(q.base, owners))
	}
	return job{text, false, func(int) {}}
}

// sharesOwners reports whether another queue with the same hash uses the same channel. mu is held.
func (b *Notifier) sharesOwners(q *ownerQueue) bool {
	for _, other := range b.owners {
		if other != q && other.base == q.base && other.live {
			return true
		}
	}
	return false
}
