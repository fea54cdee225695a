package pgnotify

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/notify"
)

const (
	// rest is the least time between two notifications of a queue: a consumer that was woken is about to claim, and senders with a
	// high rate need few notifications.
	rest = 20 * time.Millisecond

	// many exceeds any number of consumers.
	many = 1 << 20

	// A failed notification is repeated after a pause, as long as it may be useful.
	sendAgain = 250 * time.Millisecond
	sendFor   = 2 * time.Second

	commandTimeout = 5 * time.Second
)

// pending describes the messages that were committed to a queue since the last notification. mu of the Notifier guards all fields.
type pending struct {
	messages int   // of a plain queue
	owners   bool  // an ordered queue has messages
	slots    []int // in these slots, ascending; nil: any

	since    time.Time // the time of the first of them
	notUntil time.Time
}

func (t *pending) empty() bool { return t.messages == 0 && !t.owners }

// merge adds messages.
func (t *pending) merge(more pending) {
	t.messages = min(t.messages+more.messages, many)
	switch {
	case !more.owners:
	case !t.owners:
		t.owners, t.slots = true, more.slots
	default:
		t.slots = notify.Union(t.slots, more.slots)
	}
}

// Notify implements chanq.Notifier. It returns immediately.
func (b *Notifier) Notify(n chanq.Notification) {
	switch {
	case n.Slots != nil:
		b.add(n.Queue, pending{owners: true, slots: slices.Clone(n.Slots)})
	case n.Messages == 0: // for either kind of queue
		b.add(n.Queue, pending{messages: many, owners: true})
	default:
		b.add(n.Queue, pending{messages: n.Messages})
	}
}

// add adds messages to those with a pending notification.
func (b *Notifier) add(queue string, more pending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	t := b.unsent[queue]
	if t == nil {
		t = &pending{}
		b.unsent[queue] = t
	}
	if t.empty() {
		t.since = time.Now()
	}
	t.merge(more)
	select {
	case b.soon <- struct{}{}:
	default:
	}
	if !b.sends {
		b.sends = true
		b.joined.Go(b.sendAll)
	}
}

// sendAll sends notifications until Close, and then the pending ones.
func (b *Notifier) sendAll() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for b.sending.Err() == nil {
		closed := b.open.Err() != nil // no notification is added after this
		queue, due, wait := b.due(time.Now(), closed)
		switch {
		case !due.empty():
			b.sendOne(queue, due)
			continue
		case closed:
			return
		}
		timer.Reset(wait)
		select {
		case <-b.open.Done():
		case <-b.soon:
		case <-timer.C:
		}
	}
}

// due takes a queue with a notification to send now, or returns how long there is none. If last is true, no notification is
// delayed.
func (b *Notifier) due(now time.Time, last bool) (queue string, due pending, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait = time.Hour
	for name, t := range b.unsent {
		left := t.notUntil.Sub(now)
		switch {
		case t.empty():
		case left <= 0 || last:
			due = *t
			t.messages, t.owners, t.slots = 0, false, nil
			return name, due, 0
		default:
			wait = min(wait, left)
		}
	}
	return "", pending{}, wait
}

// plainStatement notifies the processes that hold listener slots, starting at a given slot, at most one process per message. The
// payload is the process's share of the messages. A slot is taken if its lock cannot be shared. The lock of a free slot is held
// until the statement ends, shared by any number of senders. The statement writes nothing and never waits.
const plainStatement = `SELECT pg_notify('chnq_' || slot::text, (($4::int - 1) / least($4::int, taken) + 1)::text)
FROM (
  SELECT slot, count(*) OVER () AS taken
  FROM (SELECT $2::int + (i + $3::int) % 4 AS slot FROM generate_series(0, 3) AS i) AS slots
  WHERE NOT pg_try_advisory_xact_lock_shared($1::int, slot)
  LIMIT $4::int
) AS listeners`

// ownersStatement notifies the owners of slots if a process listens: then the lock cannot be acquired. Two concurrent senders may
// mistake each other for listeners, which costs a notification. The statement writes nothing and never waits.
const ownersStatement = `SELECT pg_notify('chnq_' || ($2::int + 4)::text, $3::text) WHERE NOT pg_try_advisory_xact_lock($1::int, $2::int + 4)`

// bothStatement is for a queue whose kind is unknown.
const bothStatement = plainStatement + ` UNION ALL SELECT pg_notify('chnq_' || ($2::int + 4)::text, $5::text) WHERE NOT pg_try_advisory_xact_lock($1::int, $2::int + 4)`

// sendOne sends one notification for the messages of a queue.
func (b *Notifier) sendOne(queue string, due pending) {
	ctx, cancel := context.WithTimeout(b.sending, commandTimeout)
	defer cancel()
	base, payload := baseOf(queue), notify.Format(due.slots, mostPayload)
	var err error
	switch {
	case !due.owners:
		_, err = b.db.ExecContext(ctx, plainStatement, class, base, rand.IntN(listenerSlots), due.messages)
	case due.messages == 0:
		_, err = b.db.ExecContext(ctx, ownersStatement, class, base, payload)
	default:
		_, err = b.db.ExecContext(ctx, bothStatement, class, base, rand.IntN(listenerSlots), due.messages, payload)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t, now := b.unsent[queue], time.Now()
	if err != nil && now.Sub(t.since) < sendFor && !b.closed {
		t.merge(due)
		t.notUntil = now.Add(sendAgain)
	} else {
		t.notUntil = now.Add(rest)
	}
}
