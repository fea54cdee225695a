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
	class    = 0x63686e71 // 'chnq', of all locks
	chairs   = 4          // of a queue
	channels = "chnq_"    // begins the names of channels

	// onItsWay is for how long after that what comes was sent to us, and is handed on;
	// later it is for who sits there now.
	onItsWay = 20 * time.Millisecond
)

// retries are the pauses between tries to find a free chair. A ring holds free chairs for
// a moment, so the first failure says little.
var retries = []time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second, 30 * time.Second}

// hasty is the least time between tries for the sake of newcomers.
const hasty = 250 * time.Millisecond

// waitedQueue is a queue as this process hears it. mu of the Notifier guards all of it. Only the
// listener changes chair and listening.
type waitedQueue struct {
	queue   string
	base    int32 // of its locks
	waiters []*waiter
	next    int // whose turn it is to be woken

	chair     int       // -1: none
	listening int       // the chair whose channel is heard; -1: none
	tried     time.Time // last, for a chair
	tryAt     time.Time
	failures  int
	left      time.Time // when the chair was given up
	handOn    int       // messages for which this process was woken and has nobody
}

// baseOf a queue's locks: 29 bits of a hash, and room for the number of a chair.
func baseOf(queue string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(queue))
	return int32(h.Sum32() &^ 7)
}

// channelOf a chair is heard by who sits there alone.
func channelOf(base int32, chair int) string {
	return channels + strconv.Itoa(int(base)+chair)
}

// Listen implements chanq.Notifier. It returns immediately. The first value comes when a listener slot is taken, for an ordered queue
// when the session listens.
func (b *Notifier) Listen(queue string, slots []int) (<-chan struct{}, func()) {
	if slots != nil {
		return b.listenAsOwner(queue, slots)
	}
	e := &waiter{heard: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(e.heard)
		return e.heard, func() {}
	}
	l := b.lines[queue]
	if l == nil {
		l = &waitedQueue{queue: queue, base: baseOf(queue), chair: -1, listening: -1}
		b.lines[queue] = l
	}
	l.waiters = append(l.waiters, e)
	switch {
	case l.chair >= 0 && l.listening == l.chair:
		e.notify()
	case l.chair < 0:
		l.failures, l.tryAt = 0, l.tried.Add(hasty)
		b.kick()
	}
	if !b.listens {
		b.listens = true
		b.joined.Go(b.listen)
	}
	return e.heard, func() { b.leave(l, e) }
}

// leave ends an ear. What it was woken for and did not hear is handed on.
func (b *Notifier) leave(l *waitedQueue, e *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range l.waiters {
		if l.waiters[i] != e {
			continue
		}
		l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
		select {
		case <-e.heard:
			if len(l.waiters) > 0 {
				l.wake(1)
			} else {
				l.handOn++
			}
		default:
		}
		if len(l.waiters) == 0 {
			b.kick()
		}
		return
	}
}

// kick has the listener look at what there is to do. mu is held.
func (b *Notifier) kick() {
	b.dirty = true
	if b.interrupt != nil {
		b.interrupt()
	}
}

// wake rings n of the waiters, in turn, those first that have not been rung.
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

// notify reports that it had not been notified.
func (e *waiter) notify() bool {
	select {
	case e.heard <- struct{}{}:
		return true
	default:
		return false
	}
}

// called has those woken whom a notification is for, or hands it on where nobody is left.
func (b *Notifier) called(channel string, messages int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		switch {
		case l.listening < 0 || channelOf(l.base, l.listening) != channel:
		case l.chair == l.listening && len(l.waiters) > 0:
			l.wake(messages)
		case l.chair == l.listening || time.Since(l.left) < onItsWay:
			l.handOn += messages
			b.dirty = true
		}
	}
}

// deafen ends all waiters, since the connection is lost, and with it the chairs.
func (b *Notifier) deafen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if l.chair >= 0 {
			for _, e := range l.waiters {
				close(e.heard)
			}
			l.waiters = nil
		}
		l.chair, l.listening = -1, -1
		l.failures, l.tryAt = 0, time.Time{}
	}
	b.deafenOwners()
	b.dirty = true
}

// job is a statement for the listener.
type job struct {
	text string
	asks bool        // it returns a number
	done func(n int) // called when it has succeeded
}

// todo is what to do next. Without anything it says for how long there is nothing to do,
// and whether a chair is taken.
func (b *Notifier) todo(now time.Time) (next job, wait time.Duration, seated bool) {
	handOn := map[string]int{}
	defer func() {
		for queue, n := range handOn {
			b.add(queue, pending{messages: n})
		}
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	if next, wait, seated = b.todoOwners(now); next.text != "" {
		return next, wait, seated
	}
	for _, l := range b.lines {
		seated = seated || l.chair >= 0
		if l.handOn > 0 && !(l.chair >= 0 && len(l.waiters) == 0) { // or it would come back
			handOn[l.queue], l.handOn = l.handOn, 0
		}
		left := mostWait
		switch {
		case l.chair >= 0 && len(l.waiters) == 0:
			return b.rise(l), 0, true
		case l.chair >= 0 && l.listening != l.chair:
			return b.hearChair(l), 0, true
		case l.chair < 0 && len(l.waiters) > 0:
			if left = l.tryAt.Sub(now); left <= 0 {
				return b.sit(l, now), 0, seated
			}
		}
		switch {
		case l.chair >= 0:
		case l.listening >= 0:
			until := l.left.Add(b.pace.lingers).Sub(now)
			switch {
			case until > 0:
				left = min(left, until)
			case b.shares(l):
				l.listening, left = -1, 0
			default:
				return b.hearNothing(l), 0, seated
			}
		case len(l.waiters) == 0 && l.handOn == 0:
			delete(b.lines, l.queue)
		}
		wait = min(wait, left)
	}
	return job{}, wait, seated
}

// sit takes the first free chair. mu is held.
func (b *Notifier) sit(l *waitedQueue, now time.Time) job {
	text := fmt.Sprintf("SELECT i FROM generate_series(0, %d) AS i WHERE pg_try_advisory_lock(%d, (%d)::int + i) LIMIT 1", chairs-1, class, l.base)
	return job{text, true, b.with(func(chair int) {
		l.tried = now
		if chair < 0 { // none was free
			pause := retries[min(l.failures, len(retries)-1)]
			l.failures++
			l.tryAt = now.Add(pause*3/4 + rand.N(pause/2))
			return
		}
		l.chair, l.failures = chair, 0
		if l.listening == chair {
			l.wakeAll()
		}
	})}
}

// hearChair begins to hear the channel of the chair, and has those who sit there look for
// what came before. mu is held.
func (b *Notifier) hearChair(l *waitedQueue) job {
	text, chair := "LISTEN "+quoted(channelOf(l.base, l.chair)), l.chair
	if l.listening >= 0 && !b.shares(l) {
		text += "; UNLISTEN " + quoted(channelOf(l.base, l.listening))
	}
	return job{text, false, b.with(func(int) {
		l.listening = chair
		l.wakeAll()
	})}
}

// rise gives the chair up. Who listens from now on has to find another. mu is held.
func (b *Notifier) rise(l *waitedQueue) job {
	text := fmt.Sprintf("SELECT pg_advisory_unlock(%d, (%d)::int + %d)", class, l.base, l.chair)
	l.chair, l.left, l.tryAt = -1, time.Now(), time.Time{}
	return job{text, false, b.with(func(int) { l.left = time.Now() })}
}

// hearNothing ends hearing. mu is held.
func (b *Notifier) hearNothing(l *waitedQueue) job {
	return job{"UNLISTEN " + quoted(channelOf(l.base, l.listening)), false, b.with(func(int) { l.listening = -1 })}
}

// shares reports that another queue, of the same hash, is heard on the same channel, and
// at the same chair: our session may have its lock twice. mu is held.
func (b *Notifier) shares(l *waitedQueue) bool {
	for _, other := range b.lines {
		if other != l && other.base == l.base && other.listening == l.listening {
			return true
		}
	}
	return false
}

// quoted is the name of a channel in a statement.
func quoted(channel string) string { return pgx.Identifier{channel}.Sanitize() }

func (l *waitedQueue) wakeAll() {
	for _, e := range l.waiters {
		e.notify()
	}
}

// with is f under mu.
func (b *Notifier) with(f func(int)) func(int) {
	return func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		f(n)
	}
}

// waits has a wait interrupted by what there is to do from now on. It reports false if
// there is something already.
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

// waited ends what waits began: whatever there is to do will be looked for.
func (b *Notifier) waited() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interrupt, b.dirty = nil, false
}
