package notify

import (
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Subscription is how an idle consumer listens to the Notifier. Only the goroutine of its claims uses it. The zero value receives nothing.
//
// No notification is lost: the consumer subscribes (Listen), then looks, then sleeps. The look finds what was committed before it,
// and a notification for what is committed later reaches a subscriber. If Listen receives only after that look, its first value has
// the consumer look again.
//
// A claim counts as that look. So does one that brought something, but a look also says when the next message will be due. That look
// may wait, and there is one every lookEvery.
//
// On an ordered queue the consumer listens for the slots that it owns.
type Subscription struct {
	notifier Notifier
	name     string
	owned    func() []int // of an ordered queue: the slots of now, ascending and not nil
	slots    []int        // those that it listens for

	heard <-chan struct{} // nil: it does not listen
	stop  func()
	live  bool // something was received since Listen: so will all that follows be
	woken bool // there was a value, and no claim has been made since
	owes  bool // it was a notification: no other consumer was woken for that message
	full  int  // claims in a row that brought all they asked for

	again time.Duration // monotonic time before which it does not listen
	early bool          // it was to listen, and that was too early

	at    time.Duration // monotonic time of the last look
	next  time.Duration // the next message that it found is due then
	local bool          // a consumer of this process was woken since: its message may be due later

	lately [busyClaims]time.Duration // when the last claims were that brought something
	turn   int                       // of the oldest of those
	misses int                       // notifications in a row for which there was nothing to claim
	missAt time.Duration             // when the last of those was
}

// NewSubscription returns one that does not listen yet. notifier may be nil. owned returns the slots of the consumer, of an ordered
// queue.
func NewSubscription(notifier Notifier, queue string, owned func() []int) Subscription {
	return Subscription{notifier: notifier, name: queue, owned: owned}
}

// Heard receives a value for each notification while the consumer listens; otherwise it is nil.
func (s *Subscription) Heard() <-chan struct{} { return s.heard }

// Live reports that notifications are received.
func (s *Subscription) Live() bool { return s.live }

const (
	// mutedFor is how long a consumer does not listen after the channel was closed.
	mutedFor = time.Second

	// ShortPause is too short for Listen. A consumer that has become idle just now is often busy soon.
	ShortPause = 15 * time.Millisecond

	// lookEvery is how often a subscriber looks at least, after messages that it was woken for: some that were sent with them
	// may be due later.
	lookEvery = time.Second

	// So many claims that brought something within busyFor are enough to do without a Notifier: polling finds the next message as
	// soon.
	busyClaims = 16
	busyFor    = 400 * time.Millisecond

	// mostBackoff is how long a consumer receives nothing at most after notifications for which it found nothing.
	mostBackoff = 100 * time.Millisecond
)

// Subscribe begins to listen.
func (s *Subscription) Subscribe() {
	if s.notifier == nil || s.heard != nil {
		return
	}
	now := base.Now()
	if s.early = now < s.again || s.busy(now) > 0; s.early {
		return
	}
	s.live = false
	if s.owned != nil {
		s.slots = s.owned()
	}
	_ = base.Call(func() { s.heard, s.stop = s.notifier.Listen(s.name, s.slots) })
	if s.heard == nil {
		s.Unsubscribe()
	}
}

// Follow listens again if the slots are not those that it listens for, and reports whether they are others: a look for what was
// committed for them before must follow.
func (s *Subscription) Follow() bool {
	if s.heard == nil || s.owned == nil || slices.Equal(s.slots, s.owned()) {
		return false
	}
	s.Unsubscribe()
	s.Subscribe()
	return true
}

// Unsubscribe ends listening. It reports whether there was a notification for which no claim was made.
func (s *Subscription) Unsubscribe() (owes bool) {
	if stop := s.stop; stop != nil {
		_ = base.Call(stop)
	}
	owes = s.owes
	s.heard, s.stop, s.live, s.owes = nil, nil, false, false
	return owes
}

// Received notes a value of the channel, or its end. It reports whether to look at once: after a notification, and if
// notifications may have been lost.
func (s *Subscription) Received(open bool) (look bool) {
	look = open || s.live
	s.owes = s.owes || open && s.live
	s.live, s.woken = true, true
	if !open {
		s.Unsubscribe()
		s.again = base.Now() + mutedFor
	}
	return look
}

// Answer takes a value that has not been received yet, because a claim follows.
func (s *Subscription) Answer() {
	select {
	case _, open := <-s.heard:
		s.Received(open)
	default:
	}
}

// InProcess notes that the consumer was woken by its own process.
func (s *Subscription) InProcess() { s.local = true }

// Looked notes a look that found nothing to claim before due.
func (s *Subscription) Looked(due time.Duration) {
	s.at, s.local = base.Now(), false
	s.next = math.MaxInt64
	if due < s.next-s.at {
		s.next = s.at + due
	}
}

// Spare returns for how long no look is needed after a claim that brought something.
func (s *Subscription) Spare(pollMax time.Duration) time.Duration {
	if !s.live || s.local || s.at == 0 {
		return 0
	}
	return min(s.at+min(lookEvery, pollMax), s.next) - base.Now()
}

// MutedFor returns for how long it is not to listen. When that time has ended after an early subscribe, it returns 0 once: the consumer
// subscribes before it sleeps.
func (s *Subscription) MutedFor() time.Duration {
	if s.notifier == nil || s.heard != nil {
		return math.MaxInt64
	}
	now := base.Now()
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

// busy returns for how long it counts as claiming so often that it needs no Notifier.
func (s *Subscription) busy(now time.Duration) time.Duration {
	if s.lately[s.turn] == 0 {
		return 0
	}
	return s.lately[s.turn] + busyFor - now
}

// BackoffFor returns for how long it receives nothing, because there was nothing to claim after several notifications: other consumers
// have taken the messages.
func (s *Subscription) BackoffFor() time.Duration {
	if s.misses < 3 {
		return 0
	}
	return s.missAt + min(mostBackoff, Every<<min(s.misses-3, 8)) - base.Now()
}

// Quiet reports whether there was a look or claim after each notification.
func (s *Subscription) Quiet() bool { return s.live && len(s.heard) == 0 }

// Waits reports whether it listens and has received nothing: the Notifier may wake other consumers only.
func (s *Subscription) Waits() bool { return s.heard != nil && !s.live }

// ClaimedNone reports, after a claim that brought nothing, whether a notification had led to it.
func (s *Subscription) ClaimedNone() bool {
	missed := s.woken
	s.woken, s.owes = false, false
	if missed {
		now := base.Now()
		if now-s.missAt > lookEvery {
			s.misses = 0
		}
		s.misses++
		s.missAt = now
	}
	return missed
}

// Claimed notes a claim that brought something; full: all that it asked for. It reports whether the consumer needs no Notifier:
// after two full claims, or many others.
func (s *Subscription) Claimed(full bool) (enough bool) {
	s.woken, s.owes, s.misses = false, false, 0
	now := base.Now()
	s.lately[s.turn] = now
	s.turn = (s.turn + 1) % busyClaims
	if full {
		s.full++
	} else {
		s.full = 0
	}
	return s.full > 1 || s.busy(now) > 0
}
