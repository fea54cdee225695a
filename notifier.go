package chanq

import (
	"database/sql"

	"github.com/chanq/chanq/internal/notify"
)

// Notifier wakes idle consumers of other processes, so that a message does not wait for their next poll.
// github.com/chanq/chanq/pgnotify is a Notifier for PostgreSQL and github.com/chanq/chanq/mssqlnotify one for SQL Server. SQLite
// files that github.com/chanq/chanq/embedded opened have their own. Set the same kind of Notifier in the Config of all programs that
// use a queue. Consumers of one process and one *sql.DB wake each other without a Notifier.
//
// A Notifier changes no guarantee: consumers always poll every ConsumerConfig.PollEvery (1 s). A lost notification delays a message
// until then, and a superfluous one costs a statement. A Notifier may therefore drop, repeat and merge notifications.
//
// Both methods identify a queue by its schema and its name, for example "public.orders". They are called concurrently, with no lock
// held. They must not block, because a producer's worker or the claims of a consumer wait for them, and must not call chanq. If they
// panic, only a notification is lost.
type Notifier interface {
	// Notify is called after a commit that left something to claim: messages of a Producer, a Pipe, Queue.Send or an InTx, messages
	// that were nacked, messages that a stopping consumer released, and Redrive and Resume of package chanqadmin. It is also called
	// by Queue.Wake. SendTx does not notify in a transaction of the caller's own, because only the caller knows when that commits:
	// call Queue.Wake after it. While a Producer or Pipe has more to store, it notifies at most every 20 ms, and immediately when the
	// last message is stored. Each commit is followed by a notification.
	//
	// A Notifier with a method PlainOnly() is used by plain queues only. Consumers of ordered queues then poll. Open
	// calls a method SessionMaxAge(time.Duration) with Config.SessionMaxAge: a Notifier that has one replaces its
	// connections at that age.
	Notify(Notification)

	// A consumer that found nothing calls Listen before its last poll and the pause that follows. A value of the channel ends that
	// pause. stop is called once: when the consumer claims so often that it needs no Notifier, when its readers are busy, when the
	// channel was closed, and when the consumer ends. Occasional messages do not end the listening. Like the two methods, stop must
	// not block.
	//
	// slots are those that the consumer of an ordered queue owns, in ascending order, and empty while it owns none. They are nil for
	// a plain queue. When the slots change, the consumer calls stop, and then Listen with the new slots.
	//
	// On a plain queue a message is for one consumer. If stop finds a notification in the channel that was sent to this consumer
	// alone and was not received, it must pass it to another consumer. On an ordered queue a notification with slots is for each
	// consumer that has one of the slots, and for no other. A notification without slots is for each consumer, for example because
	// slots are free. Consumers that listen check for free slots at least every 10 s.
	//
	// The first value means that notifications are received from now on: the consumer polls again, and then sleeps for PollEvery.
	// Before that value the consumer polls after pauses that grow to PollEvery. A Notifier that receives immediately may send the
	// value before Listen returns. Use a capacity of 1: several unreceived values mean the same as one. A closed channel means that
	// notifications are no longer received: the consumer calls stop, polls as without a Notifier, and calls Listen again after 1 s.
	Listen(queue string, slots []int) (heard <-chan struct{}, stop func())
}

// Notification describes the messages that a commit left to claim.
type Notification struct {
	// Queue is the schema and the name of the queue.
	Queue string
	// Messages is an upper bound of the number of messages; 0 if they were not counted. It is 0 on an ordered queue if Slots is nil.
	// On a plain queue no more consumers need to wake.
	Messages int
	// Slots are the slots of an ordered queue that have the messages, in ascending order; nil: any slot.
	Slots []int
}

// NoNotifier is a Config.Notifier that disables the Notifier of a *sql.DB: consumers of other processes are not woken, and idle
// consumers poll.
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
