package chanq

import (
	"database/sql"

	"github.com/chanq/chanq/internal/notify"
)

// Notifier wakes idle consumers of other processes. Use pgnotify on PostgreSQL and mssqlnotify on SQL Server; SQLite
// files that embedded.Open opened have their own. See docs/operate/waking.md. Consumers on one *sql.DB wake each other
// without it.
//
// You can write your own. It can drop, repeat and merge notifications: consumers also poll every
// ConsumerConfig.PollEvery. Its methods get the schema and the name of a queue, for example "public.orders". They are
// called concurrently, must not block and must not call chanq. If they panic, one notification is lost.
type Notifier interface {
	// Notify is called after each commit that left something to claim, of a Producer, Pipe, Queue.Send, InTx, a nack, a
	// release by a stopping consumer, Redrive or Resume, and by Queue.Wake. SendTx in your own transaction does not
	// call it. During a burst a Producer or Pipe calls it every 20 ms, and immediately at the end.
	//
	// Two more methods are optional. A Notifier with PlainOnly() is for plain queues; consumers of ordered queues then
	// poll. Open calls SessionMaxAge(time.Duration) with the age at which to replace connections.
	Notify(Notification)

	// Listen is called by an idle consumer, before its last poll and the pause that follows. A value of heard ends that
	// pause. The consumer calls stop once: after a claim that found as many messages as requested, when its readers are
	// busy, when heard was closed, and when it stops. stop must not block. slots are the consumer's own on an ordered
	// queue, in ascending order, and nil on a plain one. When they change, it calls stop and Listen again.
	//
	//   - The first value means that you receive notifications from now on: the consumer polls again, and then pauses
	//     for PollEvery. You can send it before Listen returns. Give heard a capacity of 1.
	//   - Close heard when you receive no more. The consumer polls, and calls Listen again after 1 s.
	//   - On a plain queue a message is for one consumer. If you sent it to this one alone, and stop finds it
	//     unreceived in heard, pass it to another.
	//   - On an ordered queue a notification is for all owners of its slots, and for no other consumer; without slots,
	//     for each.
	Listen(queue string, slots []int) (heard <-chan struct{}, stop func())
}

// Notification describes what a commit left to claim.
type Notification struct {
	// Queue is the schema and the name of the queue.
	Queue string
	// Messages is an upper bound of the number of messages; 0 if they were not counted. On a plain queue no more
	// consumers need to wake.
	Messages int
	// Slots are the slots of the messages on an ordered queue, in ascending order; nil: any slot.
	Slots []int
}

// NoNotifier is a Config.Notifier that disables the Notifier of a *sql.DB.
type NoNotifier struct{}

// Notify implements Notifier. It does nothing.
func (NoNotifier) Notify(Notification) {}

// Listen implements Notifier. It returns a nil channel.
func (NoNotifier) Listen(string, []int) (<-chan struct{}, func()) { return nil, func() {} }

// plainNotifier is a Notifier that wakes no consumers of ordered queues.
type plainNotifier interface{ PlainOnly() }

// notifierOf returns the Notifier of a queue on db, given the configured one; nil means none.
func notifierOf(db *sql.DB, configured Notifier, ordered bool) notify.Notifier {
	if _, plain := configured.(plainNotifier); plain && ordered {
		return nil
	}
	switch n := configured.(type) {
	case NoNotifier:
		return nil
	case nil:
		if own, has := db.Driver().(Notifier); has {
			return adapted{own}
		}
		return nil
	default:
		return adapted{n}
	}
}

// adapted adapts a Notifier to package notify.
type adapted struct{ Notifier }

func (a adapted) Notify(queue string, messages int, slots []int) {
	a.Notifier.Notify(Notification{Queue: queue, Messages: messages, Slots: slots})
}
