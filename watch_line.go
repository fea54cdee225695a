package chanq

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// What a watch (watch.go) knows of a queue and of the consumers that listen for it, and what
// it makes of that.

// mostVain bounds the rest after finds that brought their consumer nothing: another process
// was faster, or what is there is not for it to claim.
const mostVain = 250 * time.Millisecond

// watchAgain are the pauses between tries to find a free chair.
var watchAgain = []time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second, 10 * time.Second}

// watchLine is a queue of this process's.
type watchLine struct {
	names sqlbatch.Names
	chore housework // of the watcher's goroutine
	ears  []*watchEar

	seated   bool // it had a chair in the last request that was to look
	missed   bool // something was found, and no ear was armed
	failures int  // tries for a chair in a row
	tryAt    time.Duration
	next     int // whose turn it is to be rung
}

// watchEar is one consumer's. Its claimer uses it as a Bell.
type watchEar struct {
	watcher *watcher
	line    *watchLine
	every   time.Duration

	// Of the watcher's mu.
	heard  chan struct{} // nil: the consumer does not listen
	armed  bool          // it sleeps, or is about to have its last look
	floors sqlbatch.Floors
	placed bool // floors are known
	rung   bool // something was found for it, and it has not claimed since
	vain   int  // finds in a row that brought it nothing
	rest   time.Duration
}

// Ring implements Bell: who watches needs nobody to ring.
func (e *watchEar) Ring(string) {}

// Listen implements Bell.
func (e *watchEar) Listen(string) (<-chan struct{}, func()) {
	e.watcher.mu.Lock()
	defer e.watcher.mu.Unlock()
	heard := make(chan struct{}, 1)
	e.heard = heard
	if l := e.line; l.seated {
		e.ring()
	} else {
		l.failures, l.tryAt = 0, min(l.tryAt, monotonic()+watchAgain[0])
	}
	return heard, func() {
		e.watcher.mu.Lock()
		defer e.watcher.mu.Unlock()
		if e.heard == heard {
			e.heard, e.armed = nil, false
		}
	}
}

// arm says that the consumer is about to look, from there, and then to sleep.
func (e *watchEar) arm(floors sqlbatch.Floors) {
	e.watcher.mu.Lock()
	defer e.watcher.mu.Unlock()
	if e.heard == nil {
		return
	}
	e.floors, e.placed = floors, true
	if !e.armed {
		e.armed, e.line.missed = true, false
		notify(e.watcher.work)
	}
}

// disarm says that the consumer is awake: it will look before it sleeps again.
func (e *watchEar) disarm() {
	e.watcher.mu.Lock()
	defer e.watcher.mu.Unlock()
	e.armed = false
}

// claimed says what came of a find.
func (e *watchEar) claimed(something bool) {
	e.watcher.mu.Lock()
	defer e.watcher.mu.Unlock()
	switch {
	case something:
		e.vain, e.rest = 0, 0
	case e.rung:
		e.vain++
		e.rest = monotonic() + min(e.every<<min(e.vain, 10), mostVain)
	}
	e.rung = false
}

// ring leaves a value for the consumer. The watcher's mu is held.
func (e *watchEar) ring() {
	if e.heard != nil {
		notify(e.heard)
	}
}

// watchDuty is what the next request is to do about a queue.
type watchDuty uint8

const (
	watchNone   watchDuty = iota // nobody listens, or it is too early to try for a chair again
	watchSit                     // try for a chair
	watchLook                    // look
	watchKeep                    // look, if there is a request: its consumer is awake, and back soon
	watchMissed                  // what is there was found already, and its consumer is awake
	watchRest                    // it was looked at in vain
)

// duty also says how long it may be until there is more to do; math.MaxInt64 is for ever.
func (l *watchLine) duty(now time.Duration) (duty watchDuty, left time.Duration) {
	listens, armed := false, false
	left = math.MaxInt64
	for _, e := range l.ears {
		switch {
		case e.heard == nil || !e.placed:
			continue
		case !e.armed:
		case e.rest > now:
			left = min(left, e.rest-now)
		default:
			armed = true
		}
		listens = true
	}
	switch {
	case !listens:
		l.seated = false
		return watchNone, math.MaxInt64
	case armed && l.seated:
		return watchLook, math.MaxInt64
	case armed && l.tryAt > now:
		return watchNone, l.tryAt - now
	case armed:
		return watchSit, math.MaxInt64
	case !l.seated:
		return watchNone, left
	case left < math.MaxInt64:
		return watchRest, left
	case l.missed:
		return watchMissed, math.MaxInt64
	}
	return watchKeep, math.MaxInt64
}

// answered takes what a request told of the queue.
func (l *watchLine) answered(a watchAnswer, now time.Duration) {
	switch was := l.seated; {
	case !a.seated && was:
		l.deafen()
	case !a.seated:
		pause := watchAgain[min(l.failures, len(watchAgain)-1)]
		l.failures++
		l.tryAt = now + pause*3/4 + rand.N(pause/2)
	case !was:
		l.seated, l.failures = true, 0
		for _, e := range l.ears {
			e.ring() // from here on it is heard
		}
	}
	if a.found {
		l.missed = !l.wake(now)
	}
}

// wake rings one of the ears that are armed, each in its turn. It reports whether there is one.
func (l *watchLine) wake(now time.Duration) bool {
	for range l.ears {
		l.next = (l.next + 1) % len(l.ears)
		if e := l.ears[l.next]; e.armed && e.rest <= now {
			e.armed, e.rung = false, true
			e.ring()
			return true
		}
	}
	return false
}

// deafen tells the ears that nothing is heard any more.
func (l *watchLine) deafen() {
	l.seated = false
	for _, e := range l.ears {
		if e.heard != nil {
			close(e.heard)
			e.heard, e.armed = nil, false
		}
	}
}

// What a seat (bell.go) that may be at a watch does besides.

// newSeat is one at the Bell of the queue, or at a watch, if that is not nil.
func newSeat(q *queue, watch *watchEar) seat {
	s := seat{bell: q.ringer.bell, name: q.ringer.name, watch: watch}
	if watch != nil {
		s.bell = watch
	}
	return s
}

// arm says that the consumer is about to look from there, and then to sleep, unless it
// finds something.
func (s *seat) arm(floors sqlbatch.Floors) {
	if s.watch != nil {
		s.watch.arm(floors)
	}
}

// disarm says that it is awake.
func (s *seat) disarm() {
	if s.watch != nil {
		s.watch.disarm()
	}
}

// leave ends the consumer's part of a watch. Call end once, to wait for what is under way.
func (s *seat) leave() (end func()) {
	if s.watch == nil {
		return func() {}
	}
	return s.watch.leave()
}
