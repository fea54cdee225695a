package chanq

import (
	"database/sql"
	"math"
	"sync"
	"time"
)

// Bell wakes idle consumers of other processes, so that a message does not wait for
// their next look: by whatever messenger there is between the processes.
// github.com/chanq/chanq/pgbell is one for PostgreSQL, github.com/chanq/chanq/mssqlnotify one
// for SQL Server, and SQLite files that
// github.com/chanq/chanq/embedded opened have one by themselves. Give the same to Config in
// all programs that use a queue. Within a process, and on one *sql.DB, consumers wake
// without it.
//
// A Bell makes nothing more certain and nothing less: consumers look each
// ConsumerConfig.PollMax (1 s) whatever it does. A ring that is lost delays until then,
// one too many costs a statement. So it may forget, repeat and confuse rings, and be away.
//
// Both methods name a queue by its schema and its name, "public.orders". They are called
// by any number of goroutines at once, with no lock held, must not block (whoever calls
// waits, a producer's worker or the claims of a consumer), and must not call back into
// chanq. A panic in them is a ring less.
type Bell interface {
	// Ring is called after a commit that left something to claim: messages of a
	// Producer or a Pipe, what was given back by Nack or Release, Queue.Redrive,
	// Queue.Resume and Queue.Wake. SendTx does not ring, since only the caller knows of
	// his commit: call Queue.Wake after it. While a Producer or Pipe has more to store, it
	// rings at most each 20 ms, and at the end at once; no commit is without a ring
	// after it.
	//
	// A Bell that has a method PlainOnly() is used by plain queues only; consumers of ordered
	// ones poll. A Bell that has a method RingFor(queue string, messages int) as well is rung by
	// that. It tells how many messages were stored, or an upper bound, so that no more
	// consumers wake than there is work for.
	Ring(queue string)

	// Listen is called by a consumer that found nothing, before its last look and the
	// pause that follows; what the channel gives ends that pause. stop is called once:
	// when it claims so often that it needs no bell, when its readers are busy, when
	// the channel was closed, and when it ends. A few messages now and then do not end it.
	// Like the two methods it must not block. A ring that it finds in the channel, not
	// received yet, is the Bell's to hand on, if it was for this consumer alone.
	//
	// The first value says that rings are heard from here on, which lets the consumer
	// look again, and then sleep for as long as PollMax; without it, it looks after pauses
	// that grow up to PollMax. A Bell that hears at once may leave it there before it
	// returns. A capacity of 1 is right: values that the consumer has not received yet
	// are worth no more than one. A closed channel says that rings are heard no more: the
	// consumer calls stop, looks as without a Bell, and calls Listen again after a second.
	Listen(queue string) (heard <-chan struct{}, stop func())
}

// NoBell is a Config.Bell that switches off the one that a *sql.DB has by itself: nobody
// is woken, and idle consumers poll.
type NoBell struct{}

// Ring implements Bell.
func (NoBell) Ring(string) {}

// Listen implements Bell. It hears nothing.
func (NoBell) Listen(string) (<-chan struct{}, func()) { return nil, func() {} }

// plainBell is a Bell that wakes no consumers of ordered queues.
type plainBell interface{ PlainOnly() }

// bellOf is the Bell of a queue on db, where the config has this one; nil is none.
func bellOf(db *sql.DB, configured Bell, ordered bool) Bell {
	if _, plain := configured.(plainBell); plain && ordered {
		return nil
	}
	switch b := configured.(type) {
	case NoBell:
		return nil
	case nil:
		own, _ := db.Driver().(Bell)
		return own
	default:
		return b
	}
}

// countingBell is what Bell's Ring tells of.
type countingBell interface {
	RingFor(queue string, messages int)
}

// ringEvery is the least time between two rings for commits of which more follow.
const ringEvery = 20 * time.Millisecond

// ringMany stands for a number of messages that nobody has counted.
const ringMany = 1 << 20

// ringer rings the Bell of a queue. It is safe for concurrent use; the zero value rings
// nothing.
type ringer struct {
	bell Bell
	name string

	mu      sync.Mutex    // guards what follows; held for moments, not while the bell rings
	rung    time.Duration // monotonic time of the last ring; 0: never
	waiting int           // messages for which it has not rung
	late    *time.Timer   // rings for them; nil: nothing waits
}

// ring says that messages were committed. more says that a ring for others will
// follow: this one need not be at once.
func (r *ringer) ring(messages int, more bool) {
	if r.bell == nil {
		return
	}
	now := monotonic()
	r.mu.Lock()
	r.waiting += messages
	wait := r.rung + ringEvery - now
	if more && r.rung > 0 && wait > 0 {
		if r.late == nil {
			r.late = time.AfterFunc(wait, r.end)
		}
		r.mu.Unlock()
		return
	}
	messages = r.take(now)
	r.mu.Unlock()
	r.pull(messages)
}

// end rings for what waits for a ring.
func (r *ringer) end() {
	r.mu.Lock()
	messages := r.take(monotonic())
	r.mu.Unlock()
	if messages > 0 {
		r.pull(messages)
	}
}

// take returns for how many messages to ring now. mu is held.
func (r *ringer) take(now time.Duration) (messages int) {
	if r.late != nil {
		r.late.Stop()
		r.late = nil
	}
	messages, r.waiting, r.rung = r.waiting, 0, max(1, now)
	return messages
}

func (r *ringer) pull(messages int) {
	_ = apart(func() {
		if b, ok := r.bell.(countingBell); ok {
			b.RingFor(r.name, messages)
		} else {
			r.bell.Ring(r.name)
		}
	})
}

// seat is where an idle consumer listens for the Bell. Only its claimer uses it. The zero
// value hears nothing.
//
// No ring is lost: the consumer sits down (Listen), then looks, then sleeps. What was
// committed before the look is seen by it, and the ring for what is committed later
// comes to somebody who sits. Where Listen takes until after the look to be heard, its
// first value has the consumer look again.
//
// A claim does for a look in that, and one that brought something in place of the look:
// what a look tells besides is when there will be something to claim, and that may wait
// until the next one, of which there is one each lookEvery.
type seat struct {
	bell Bell
	name string

	heard  <-chan struct{} // nil: nobody sits
	stop   func()
	stands bool // something was heard since sitting down: so will all that follows be
	woken  bool // there was a value, and no claim has been made since
	owes   bool // it was a ring: there is a message that others do not wake for
	full   int  // claims in a row that brought all they asked for

	again time.Duration // monotonic time before which it does not sit down
	early bool          // it was to sit down, and that was too early

	at   time.Duration // monotonic time of the last look
	next time.Duration // what it saw to come is due then
	near bool          // something has rung in this process since: what it is may be due later

	lately [busyClaims]time.Duration // when the last claims were that brought something
	turn   int                       // of the oldest of those
	vains  int                       // rings in a row that were in vain
	vainAt time.Duration             // when the last of those was
}

const (
	// deafFor is how long a consumer does not listen after it was told that nothing is heard.
	deafFor = time.Second

	// shortPause is too short for sitting down. Who is so lately idle is often busy soon.
	shortPause = 15 * time.Millisecond

	// lookEvery is how often one who sits looks at least, after messages that it was
	// woken for: some that came with them may be due later.
	lookEvery = time.Second

	// So many claims that brought something within busyFor are enough to do without a Bell:
	// as often one polls.
	busyClaims = 16
	busyFor    = 400 * time.Millisecond

	// mostRest is how long one is deaf at most that was woken in vain again and again.
	mostRest = 100 * time.Millisecond
)

// sit begins to listen.
func (s *seat) sit() {
	if s.bell == nil || s.heard != nil {
		return
	}
	now := monotonic()
	if s.early = now < s.again || s.busy(now) > 0; s.early {
		return
	}
	s.stands = false
	_ = apart(func() { s.heard, s.stop = s.bell.Listen(s.name) })
	if s.heard == nil {
		s.rise()
	}
}

// rise ends listening. It reports that there was a ring for which no claim was made.
func (s *seat) rise() (owes bool) {
	if stop := s.stop; stop != nil {
		_ = apart(stop)
	}
	owes = s.owes
	s.heard, s.stop, s.stands, s.owes = nil, nil, false, false
	return owes
}

// rang takes note of what was received: a ring, or the end of the channel. It reports
// whether to look at once: after a ring, and where rings may have been lost that were
// counted on.
func (s *seat) rang(open bool) (look bool) {
	look = open || s.stands
	s.owes = s.owes || open && s.stands
	s.stands, s.woken = true, true
	if !open {
		s.rise()
		s.again = monotonic() + deafFor
	}
	return look
}

// answer takes what has rung, since a claim follows.
func (s *seat) answer() {
	select {
	case _, open := <-s.heard:
		s.rang(open)
	default:
	}
}

// told notes a ring in this process.
func (s *seat) told() { s.near = true }

// looked notes a look, and for how long there is nothing to claim.
func (s *seat) looked(due time.Duration) {
	s.at, s.near = monotonic(), false
	s.next = math.MaxInt64
	if due < s.next-s.at {
		s.next = s.at + due
	}
}

// spare is for how long a look is not needed after a claim that brought something.
func (s *seat) spare(pollMax time.Duration) time.Duration {
	if !s.stands || s.near || s.at == 0 {
		return 0
	}
	return min(s.at+min(lookEvery, pollMax), s.next) - monotonic()
}

// deaf is for how long yet it is not to listen. Where that has ended since it was too early
// to sit down, it is for no time, and then for ever: whoever sleeps sits down before.
func (s *seat) deaf() time.Duration {
	if s.bell == nil || s.heard != nil {
		return math.MaxInt64
	}
	now := monotonic()
	if left := max(s.again-now, s.busy(now)); left > 0 {
		return left
	}
	s.again = 0
	if s.early {
		s.early = false
		return 0
	}
	return math.MaxInt64
}

// busy is for how long yet it claims so often that it needs no Bell.
func (s *seat) busy(now time.Duration) time.Duration {
	if s.lately[s.turn] == 0 {
		return 0
	}
	return s.lately[s.turn] + busyFor - now
}

// rest is for how long yet it hears nothing, since it was rung in vain again and again: the
// messages are others', or there are none.
func (s *seat) rest() time.Duration {
	if s.vains < 3 {
		return 0
	}
	return s.vainAt + min(mostRest, ringEvery<<min(s.vains-3, 8)) - monotonic()
}

// quiet says that whoever sits here has heard of nothing that it has not looked for.
func (s *seat) quiet() bool { return s.stands && len(s.heard) == 0 }

// beside says that it listens, and is not heard: others may be who sit where it found no
// place.
func (s *seat) beside() bool { return s.heard != nil && !s.stands }

// vain reports, after a claim that brought nothing, that somebody had rung for one.
func (s *seat) vain() bool {
	vain := s.woken
	s.woken, s.owes = false, false
	if vain {
		now := monotonic()
		if now-s.vainAt > lookEvery {
			s.vains = 0
		}
		s.vains++
		s.vainAt = now
	}
	return vain
}

// claimed notes a claim that brought something, and whether that was all it asked for. It
// reports that there is work enough without a Bell: one full claim after another, or many.
func (s *seat) claimed(full bool) (enough bool) {
	s.woken, s.owes, s.vains = false, false, 0
	now := monotonic()
	s.lately[s.turn] = now
	s.turn = (s.turn + 1) % busyClaims
	if full {
		s.full++
	} else {
		s.full = 0
	}
	return s.full > 1 || s.busy(now) > 0
}
