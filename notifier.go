package chanq

import (
	"database/sql"
	"math"
	"slices"
	"sync"
	"time"
)

// Notifier wakes idle consumers of other processes, so that a message does not wait for
// their next poll. github.com/chanq/chanq/pgnotify is a Notifier for PostgreSQL and
// github.com/chanq/chanq/mssqlnotify one for SQL Server. SQLite files that
// github.com/chanq/chanq/embedded opened have one of their own. Set the same kind of Notifier in Config of
// all programs that use a queue. Consumers of one process and one *sql.DB wake each other
// without it.
//
// A Notifier changes no guarantee: consumers poll every
// ConsumerConfig.PollMax (1 s) in any case. A notification that is lost delays a message until then, and
// one too many costs a statement. A Notifier may therefore drop, repeat and merge notifications.
//
// Both methods name a queue by its schema and its name, "public.orders". Any number of goroutines
// call them at once, with no lock held. They must not block, since a producer's worker or the claims of a consumer
// wait for them, and must not call back into chanq. A panic in them loses a notification and ends nothing.
type Notifier interface {
	// Notify is called after a commit that left something to claim: messages of a
	// Producer or a Pipe, messages released by Nack or Release, Queue.Redrive,
	// Queue.Resume and Queue.Wake. SendTx does not notify, because only the caller knows when
	// the transaction commits: call Queue.Wake after it. While a Producer or Pipe has more to store, it
	// notifies at most every 20 ms, and immediately when the last message is stored. Each commit is followed by a
	// notification.
	//
	// A Notifier with a method PlainOnly() is used by plain queues only. Consumers of ordered
	// queues then poll.
	Notify(Notification)

	// Listen is called by a consumer that found nothing, before its last look and the
	// pause that follows. A value of the channel ends that pause. stop is called once:
	// when the consumer claims so often that it needs no Notifier, when its readers are busy, when
	// the channel was closed, and when the consumer ends. A few messages now and then do not end
	// the listening. Like the two methods, stop must not block.
	//
	// slots are those that the consumer of an ordered queue owns, in ascending order, and empty while it owns none.
	// They are nil for a plain queue. When the slots change, the consumer calls stop, and Listen with the new ones.
	//
	// On a plain queue a message is for one consumer. A notification that stop finds in the channel, not
	// received yet, is for another consumer, if it was for this one alone. On an ordered queue
	// a notification with slots is for each consumer that has one of them, and for no other. A notification without slots is
	// for each consumer: among others it says that slots are free. Consumers that listen look for free slots at
	// least every 10 s.
	//
	// The first value means that notifications are received from now on: the consumer
	// looks again, and then sleeps for as long as PollMax. Without that value it looks after pauses
	// that grow up to PollMax. A Notifier that receives immediately may leave the value there before Listen
	// returns. A capacity of 1 is right: several values that the consumer has not received yet
	// mean no more than one. A closed channel means that notifications are not received any more: the
	// consumer calls stop, looks as without a Notifier, and calls Listen again after a second.
	Listen(queue string, slots []int) (heard <-chan struct{}, stop func())
}

// Notification says what a commit left to claim.
type Notification struct {
	// Queue is its schema and its name.
	Queue string
	// Messages is an upper bound of the number of messages; 0: not counted. It is 0 on an ordered queue if Slots is nil.
	// On a plain queue no more consumers need to wake.
	Messages int
	// Slots are those of an ordered queue in which the messages are, in ascending order; nil: any.
	Slots []int
}

// NoNotifier is a Config.Notifier that disables the Notifier of a *sql.DB: no consumer
// of another process is woken, and idle consumers poll.
type NoNotifier struct{}

// Notify implements Notifier. It does nothing.
func (NoNotifier) Notify(Notification) {}

// Listen implements Notifier. It returns a nil channel.
func (NoNotifier) Listen(string, []int) (<-chan struct{}, func()) { return nil, func() {} }

// plainNotifier is a Notifier that wakes no consumers of ordered queues.
type plainNotifier interface{ PlainOnly() }

// notifierOf returns the Notifier of a queue on db, where the config has this one; nil is none.
func notifierOf(db *sql.DB, configured Notifier, ordered bool) Notifier {
	if _, plain := configured.(plainNotifier); plain && ordered {
		return nil
	}
	switch n := configured.(type) {
	case NoNotifier:
		return nil
	case nil:
		own, _ := db.Driver().(Notifier)
		return own
	default:
		return n
	}
}

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
	now := monotonic()
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
	n, waits := d.take(monotonic())
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

func (d *debouncer) call(n Notification) { _ = apart(func() { d.notifier.Notify(n) }) }

// seat is where an idle consumer listens for the Notifier. Only its claimer uses it. The zero
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
//
// On an ordered queue the consumer listens for the slots that it owns.
type seat struct {
	notifier Notifier
	name     string
	owned    func() []int // of an ordered queue: the slots of now, ascending and not nil
	slots    []int        // those that it listens for

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

	// So many claims that brought something within busyFor are enough to do without a Notifier:
	// as often one polls.
	busyClaims = 16
	busyFor    = 400 * time.Millisecond

	// mostRest is how long one is deaf at most that was woken in vain again and again.
	mostRest = 100 * time.Millisecond
)

// sit begins to listen.
func (s *seat) sit() {
	if s.notifier == nil || s.heard != nil {
		return
	}
	now := monotonic()
	if s.early = now < s.again || s.busy(now) > 0; s.early {
		return
	}
	s.stands = false
	if s.owned != nil {
		s.slots = s.owned()
	}
	_ = apart(func() { s.heard, s.stop = s.notifier.Listen(s.name, s.slots) })
	if s.heard == nil {
		s.rise()
	}
}

// follow listens again if the slots are not those that it listens for. It reports whether they are others: what was
// committed for them before is to be looked for.
func (s *seat) follow() bool {
	if s.heard == nil || s.owned == nil || slices.Equal(s.slots, s.owned()) {
		return false
	}
	s.rise()
	s.sit()
	return true
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
	if s.notifier == nil || s.heard != nil {
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

// busy is for how long yet it claims so often that it needs no Notifier.
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
	return s.vainAt + min(mostRest, notifyEvery<<min(s.vains-3, 8)) - monotonic()
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
// reports that there is work enough without a Notifier: one full claim after another, or many.
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
