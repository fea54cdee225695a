package notify

import (
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Subscription lets an idle consumer listen to the Notifier. Only the goroutine of its claims uses it. Without a
// Notifier it receives nothing.
//
// No notification is lost: the consumer subscribes (Listen), then polls, then sleeps. The poll finds messages that were
// committed before, and notifications for later messages reach the subscriber. If Listen receives only after that poll,
// its first value makes the consumer poll again.
//
// A claim counts as that poll, even if it found messages. A poll, however, also returns when the next message is due.
// After a claim that found messages it may be delayed, and is made every LookEvery.
//
// A consumer listens only while it is idle: it leaves after a claim that found as many messages as requested, if a
// value arrives in the pause after one that found less, and while its readers are busy.
//
// On an ordered queue the consumer listens for the slots that it owns.
type Subscription struct {
	of    *Debouncer   // of the queue
	owned func() []int // of an ordered queue: the current slots, ascending and not nil
	slots []int        // the slots that it listens for

	heard <-chan struct{} // nil: it does not listen
	stop  func()
	live  bool // a value was received since Listen: all later notifications are received
	woken bool // a value was received, and no claim has been made since
	owes  bool // that value was a notification: no other consumer was woken for the message

	muted  time.Duration // monotonic time before which it does not listen; 0: it may
	misses int           // notifications in a row for which there was nothing to claim
	poll   time.Duration // monotonic time until which a poll would find nothing, but for what this process has sent
}

// NewSubscription returns a Subscription that does not listen yet. On an ordered queue owned returns the slots of the
// consumer.
func NewSubscription(of *Debouncer, owned func() []int) Subscription {
	return Subscription{of: of, owned: owned}
}

// Heard receives a value for each notification while the consumer listens; otherwise it is nil.
func (s *Subscription) Heard() <-chan struct{} { return s.heard }

// Live reports whether notifications are received.
func (s *Subscription) Live() bool { return s.live }

// LookEvery is the time between two looks at what nothing notifies of, such as messages that were sent with others and
// are due later. After the channel was closed the consumer does not listen for as long.
const LookEvery = time.Second

// Subscribe begins to listen.
func (s *Subscription) Subscribe() {
	if s.of.Notifier == nil || s.heard != nil || base.Now() < s.muted {
		return
	}
	s.live, s.muted = false, 0
	if s.owned != nil {
		s.slots = s.owned()
	}
	base.Call(func() { s.heard, s.stop = s.of.Notifier.Listen(s.of.Queue, s.slots) })
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
	if base.Now() >= s.muted {
		s.muted = 0
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
		s.muted = base.Now() + LookEvery
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

// InProcess notes that the consumer was woken by its own process: the message might be due later.
func (s *Subscription) InProcess() { s.poll = 0 }

// Looked notes a poll that found nothing to claim before due.
func (s *Subscription) Looked(due time.Duration) { s.poll = base.Now() + min(due, LookEvery) }

// Spare returns for how long no poll is needed after a claim that found messages.
func (s *Subscription) Spare() time.Duration {
	if !s.live {
		return 0
	}
	return s.poll - base.Now()
}

// MutedFor returns how long the consumer may sleep before it tries to listen again.
func (s *Subscription) MutedFor() time.Duration {
	if s.muted == 0 {
		return math.MaxInt64
	}
	return max(0, s.muted-base.Now())
}

// BackoffFor returns for how long the consumer receives nothing, because there was nothing to claim after several
// notifications: other consumers have taken the messages.
func (s *Subscription) BackoffFor() time.Duration {
	if s.misses < 3 {
		return 0
	}
	return Every << min(s.misses-3, 2)
}

// Quiet reports whether each notification was followed by a poll or a claim.
func (s *Subscription) Quiet() bool { return s.live && len(s.heard) == 0 }

// Waits reports whether the consumer listens and has received nothing: the Notifier might wake only other consumers.
func (s *Subscription) Waits() bool { return s.heard != nil && !s.live }

// ClaimedNone notes a claim that found nothing, and reports whether a value had led to it. A message that was released
// before the first one might be before the head.
func (s *Subscription) ClaimedNone() (missed bool) {
	missed = s.woken
	s.woken, s.owes = false, false
	if missed {
		s.misses++
	}
	return missed
}

// Claimed notes a claim that found messages.
func (s *Subscription) Claimed() { s.woken, s.owes, s.misses = false, false, 0 }
