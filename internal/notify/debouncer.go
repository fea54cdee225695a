package notify

import (
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Notifier wakes consumers of other processes: see chanq.Notifier.
type Notifier interface {
	Notify(queue string, messages int, slots []int)
	Listen(queue string, slots []int) (heard <-chan struct{}, stop func())
}

// Every is the minimum time between two notifications while further commits follow. Shorter pauses are too short for
// Listen: a consumer that has just become idle is often busy again soon.
const Every = 20 * time.Millisecond

// mostNamed is the most slots that a notification names. A notification for more slots names none.
const mostNamed = 64

// Slots are the slots of a notification. The zero value has none.
type Slots struct {
	any  bool
	list []int // ascending; empty if any
}

// Add adds a slot.
func (s *Slots) Add(slot int) {
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

// Merge adds the slots of others.
func (s *Slots) Merge(others Slots) {
	if others.any {
		s.any, s.list = true, nil
	}
	for _, slot := range others.list {
		s.Add(slot)
	}
}

// AnySlot means that the slots are not known.
var AnySlot = Slots{any: true}

// Debouncer calls the Notifier of a queue. It is safe for concurrent use; without a Notifier it does nothing.
type Debouncer struct {
	Notifier Notifier // may be nil
	Queue    string
	Ordered  bool // notifications name slots

	mu       sync.Mutex    // guards the fields below; held briefly, not during Notify
	notified time.Duration // monotonic time of the last notification; 0: never
	late     *time.Timer   // notifies for the messages that wait for it; nil: none waits
	messages int           // number of waiting messages; 0: not counted
	slots    Slots         // of the waiting messages
}

// Notify notifies of committed messages, 0 if they are not counted, and of their slots on an ordered queue. more means
// that another call follows: this notification may be delayed.
func (d *Debouncer) Notify(messages int, slots Slots, more bool) {
	if d.Notifier == nil {
		return
	}
	now := base.Now()
	d.mu.Lock()
	if messages == 0 || d.late != nil && d.messages == 0 {
		d.messages = 0
	} else {
		d.messages += messages
	}
	d.slots.Merge(slots)
	if wait := d.notified + Every - now; !more || d.notified == 0 || wait <= 0 {
		d.notify(now)
		return
	} else if d.late == nil {
		d.late = time.AfterFunc(wait, d.Flush)
	}
	d.mu.Unlock()
}

// Flush notifies for the waiting messages, if there are any.
func (d *Debouncer) Flush() {
	d.mu.Lock()
	if d.late == nil {
		d.mu.Unlock()
		return
	}
	d.notify(base.Now())
}

// notify notifies for the waiting messages. mu is held, and is unlocked.
func (d *Debouncer) notify(now time.Duration) {
	if d.late != nil {
		d.late.Stop()
		d.late = nil
	}
	messages, slots := d.messages, []int(nil)
	if d.Ordered {
		if slots = d.slots.list; slots == nil {
			messages = 0
		}
	}
	d.messages, d.slots, d.notified = 0, Slots{}, max(1, now)
	d.mu.Unlock()
	base.Call(func() { d.Notifier.Notify(d.Queue, messages, slots) })
}
