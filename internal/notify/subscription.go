package notify

import (
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Subscription lets an idle consumer listen to the Notifier. Only the goroutine of its claims uses it. The zero value
// receives nothing.
//
// No notification is lost: the consumer subscribes (Listen), then polls, then sleeps. The poll finds messages that were
// committed before, and notifications for later messages reach the subscriber. If Listen receives only after that poll,
// its first value makes the consumer poll again.
//
// A claim counts as that poll, even if it found messages. A poll, however, also returns when the next message is due.
// After a claim that found messages it may be delayed, and is made every lookEvery.
//
// On an ordered queue the consumer listens for the slots that it owns.
type Subscription struct {
	notifier Notifier
	name     string
	owned    func() []int // of an ordered queue: the current slots, ascending and not nil
	slots    []int        // the slots that it listens for

	heard <-chan struct{} // nil: it does not listen
	stop  func()
	live  bool // a value was received since Listen: all later notifications are received
	woken bool // a value was received, and no claim has been made since
	owes  bool // that value was a notification: no other consumer was woken for the message
	full  int  // claims in a row that found as many messages as requested

	again time.Duration // monotonic time before which it does not listen
	early bool          // the last Subscribe was too early

	at    time.Duration // monotonic time of the last poll
	next  time.Duration // when the next message that the poll found is due
	local bool          // this process has woken the consumer since: the message might be due later

	lately [busyClaims]time.Duration // times of the last claims that found messages
	turn   int                       // index of the oldest of them
	misses int                       // notifications in a row for which there was nothing to claim
	missAt time.Duration             // time of the last of them
}

// NewSubscription returns a Subscription that does not listen yet. notifier may be nil. On an ordered queue owned
// returns the slots of the consumer.
func NewSubscription(notifier Notifier, queue string, owned func() []int) Subscription {
	return Subscription{notifier: notifier, name: queue, owned: owned}
}

// Heard receives a value for each notification while the consumer listens; otherwise it is nil.
func (s *Subscription) Heard() <-chan struct{} { return s.heard }

// Live reports whether notifications are received.
func (s *Subscription) Live() bool { return s.live }

const (
	// mutedFor is how long a consumer does not listen after the channel was closed.
	mutedFor = time.Second

	// ShortPause is too short for Listen. A consumer that has just become idle is often busy again soon.
	ShortPause = 15 * time.Millisecond

	// lookEvery is the maximum time between polls of a subscriber that is woken for messages: others that were sent
	// with them might be due later.
	lookEvery = time.Second

	// With busyClaims claims that found messages within busyFor, a consumer needs no Notifier: polling finds the next
	// message as soon.
	busyClaims = 16
	busyFor    = 400 * time.Millisecond

	// mostBackoff is the maximum time for which a consumer receives nothing after notifications for which it found
	// nothing.
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
	base.Call(func() { s.heard, s.stop = s.notifier.Listen(s.name, s.slots) })
	if s.heard == nil {
		s.Unsubscribe()
	}
}

// Follow subscribes again if the slots of the consumer have changed since Subscribe, and reports whether they have: a
// poll for messages that were committed to them before must follow.
func (s *Subscription) Follow() bool {
	if s.heard == nil || s.owned == nil || slices.Equal(s.slots, s.owned()) {
		return false
	}
	s.Unsubscribe()
	s.Subscribe()
	return true
}

// Unsubscribe stops listening. It reports whether there was a notification for which no claim was made.
func (s *Subscription) Unsubscribe() (owes bool) {
	if stop := s.stop; stop != nil {
		base.Call(stop)
	}
	owes = s.owes
	s.heard, s.stop, s.live, s.owes = nil, nil, false, false
	return owes
}

// Received notes a value of the channel, or its end. It reports whether to poll immediately: after a notification, or
// if notifications might have been lost.
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

// Answer receives a value that is in the channel, because a claim follows.
func (s *Subscription) Answer() {
	select {
	case _, open := <-s.heard:
		s.Received(open)
	default:
	}
}

// InProcess notes that the consumer was woken by its own process.
func (s *Subscription) InProcess() { s.local = true }

// Looked notes a poll that found nothing to claim before due.
func (s *Subscription) Looked(due time.Duration) {
	s.at, s.local = base.Now(), false
	s.next = math.MaxInt64
	if due < s.next-s.at {
		s.next = s.at + due
	}
}

// Spare returns for how long no poll is needed after a claim that found messages.
func (s *Subscription) Spare(pollMax time.Duration) time.Duration {
	if !s.live || s.local || s.at == 0 {
		return 0
	}
	return min(s.at+min(lookEvery, pollMax), s.next) - base.Now()
}

// MutedFor returns for how long the consumer must not listen. When that time has ended after an early Subscribe, it
// returns 0 once: the consumer subscribes before it sleeps.
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

// busy returns for how long the consumer still counts as claiming so often that it needs no Notifier.
func (s *Subscription) busy(now time.Duration) time.Duration {
	if s.lately[s.turn] == 0 {
		return 0
	}
	return s.lately[s.turn] + busyFor - now
}

// BackoffFor returns for how long the consumer receives nothing, because there was nothing to claim after several
// notifications: other consumers have taken the messages.
func (s *Subscription) BackoffFor() time.Duration {
	if s.misses < 3 {
		return 0
	}
	return s.missAt + min(mostBackoff, Every<<min(s.misses-3, 8)) - base.Now()
}

// Quiet reports whether each notification was followed by a poll or a claim.
func (s *Subscription) Quiet() bool { return s.live && len(s.heard) == 0 }

// Waits reports whether the consumer listens and has received nothing: the Notifier might wake only other consumers.
func (s *Subscription) Waits() bool { return s.heard != nil && !s.live }

// ClaimedNone notes a claim that found nothing, and reports whether a notification had led to it.
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

// Claimed notes a claim that found messages; full means as many as requested. It reports whether the consumer needs no
// Notifier: after two full claims in a row, or many others.
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
