package chanq

import (
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// notifyEvery is the least time between two notifications for commits of which more follow.
const notifyEvery = 20 * time.Millisecond

// mostNamed is the most slots of a notification. One for more of them names none.
const mostNamed = 64

// slotNames are the slots of a notification. The zero value has none.
type slotNames struct {
	any  bool
	list []int // ascending; empty if any
}

// add adds a slot.
func (s *slotNames) add(slot int) {
	if s.any {
		return
	}
	at, found := slices.BinarySearch(s.list, slot)
	switch {
	case found:
	case len(s.list) == mostNamed:
		s.any, s.list = true, nil
	default:
		s.list = slices.Insert(s.list, at, slot)
	}
}

// merge adds the slots of others.
func (s *slotNames) merge(others slotNames) {
	if others.any {
		s.any, s.list = true, nil
	}
	for _, slot := range others.list {
		s.add(slot)
	}
}

// anySlot says that the slots are not known.
var anySlot = slotNames{any: true}

// debouncer calls the Notifier of a queue. It is safe for concurrent use; without a Notifier it does nothing.
type debouncer struct {
	notifier Notifier
	queue    string
	ordered  bool

	mu       sync.Mutex    // guards what follows; held for moments, not during Notify
	notified time.Duration // monotonic time of the last notification; 0: never
	waits    bool          // messages wait for a notification
	messages int           // of these; 0: not counted
	slots    slotNames     // of these
	late     *time.Timer   // notifies for them; nil: none is needed
}

// names reports whether notifications name slots.
func (d *debouncer) names() bool { return d.ordered && d.notifier != nil }

// notify says that so many messages were committed, 0 if they are not counted, and their slots on an ordered queue. more says
// that another call follows: this notification may wait.
func (d *debouncer) notify(messages int, slots slotNames, more bool) {
	if d.notifier == nil {
		return
	}
	now := base.Now()
	d.mu.Lock()
	if messages == 0 || d.waits && d.messages == 0 {
		d.messages = 0
	} else {
		d.messages += messages
	}
	d.slots.merge(slots)
	d.waits = true
	wait := d.notified + notifyEvery - now
	if more && d.notified > 0 && wait > 0 {
		if d.late == nil {
			d.late = time.AfterFunc(wait, d.flush)
		}
		d.mu.Unlock()
		return
	}
	n, _ := d.take(now)
	d.mu.Unlock()
	d.call(n)
}

// flush notifies for the messages that wait for it.
func (d *debouncer) flush() {
	d.mu.Lock()
	n, waits := d.take(base.Now())
	d.mu.Unlock()
	if waits {
		d.call(n)
	}
}

// take returns the notification for the messages that wait. mu is held.
func (d *debouncer) take(now time.Duration) (n Notification, waits bool) {
	if d.late != nil {
		d.late.Stop()
		d.late = nil
	}
	n = Notification{Queue: d.queue, Messages: d.messages}
	if d.ordered {
		if n.Slots = d.slots.list; n.Slots == nil {
			n.Messages = 0
		}
	}
	waits = d.waits
	d.waits, d.messages, d.slots, d.notified = false, 0, slotNames{}, max(1, now)
	return n, waits
}

func (d *debouncer) call(n Notification) { _ = base.Call(func() { d.notifier.Notify(n) }) }
