package pgbell

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// rest is the least time between two rings of a queue: who was woken is on his way, and
	// senders that have so much to do need few rings.
	rest = 20 * time.Millisecond

	// many stands for more messages than there are consumers.
	many = 1 << 20

	// A ring that fails is repeated after a pause, as long as it may be of use.
	ringAgain = 250 * time.Millisecond
	ringFor   = 2 * time.Second

	commandTimeout = 5 * time.Second
)

// toll is what a queue is to be rung for. mu of the Bell guards all of it.
type toll struct {
	messages int
	since    time.Time // the first of them
	notUntil time.Time
}

// Ring implements chanq.Bell. It returns at once.
func (b *Bell) Ring(queue string) { b.RingFor(queue, many) }

// RingFor is Ring for a number of messages: no more consumers wake than there is work
// for. It returns at once.
func (b *Bell) RingFor(queue string, messages int) {
	if messages < 1 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	t := b.rung[queue]
	if t == nil {
		t = &toll{}
		b.rung[queue] = t
	}
	if t.messages == 0 {
		t.since = time.Now()
	}
	t.messages = min(t.messages+messages, many)
	select {
	case b.soon <- struct{}{}:
	default:
	}
	if !b.ringing {
		b.ringing = true
		b.joined.Go(b.ringAll)
	}
}

// ringAll rings until Close, and for what came before that.
func (b *Bell) ringAll() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for b.rings.Err() == nil {
		closed := b.open.Err() != nil // nothing comes after this
		queue, messages, wait := b.due(time.Now(), closed)
		switch {
		case messages > 0:
			b.ringOne(queue, messages)
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

// due takes a queue that is to be rung now, or says for how long there is none. At last
// no ring waits.
func (b *Bell) due(now time.Time, last bool) (queue string, messages int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait = time.Hour
	for name, t := range b.rung {
		left := t.notUntil.Sub(now)
		switch {
		case t.messages == 0:
		case left <= 0 || last:
			messages, t.messages = t.messages, 0
			return name, messages, 0
		default:
			wait = min(wait, left)
		}
	}
	return "", 0, wait
}

// ringStatement notifies those who sit, from a chair on and no more than there are
// messages, and tells each its share of them. A chair is taken if it cannot be shared; one
// that is free is held until the statement ends, by any number of rings at once. It writes
// nothing, and waits for nobody.
const ringStatement = `SELECT pg_notify('chnq_' || seat::text, (($4::int - 1) / least($4::int, taken) + 1)::text)
FROM (
  SELECT seat, count(*) OVER () AS taken
  FROM (SELECT $2::int + (i + $3::int) % 4 AS seat FROM generate_series(0, 3) AS i) AS seats
  WHERE NOT pg_try_advisory_xact_lock_shared($1::int, seat)
  LIMIT $4::int
) AS sitting`

// ringOne rings a queue once.
func (b *Bell) ringOne(queue string, messages int) {
	ctx, cancel := context.WithTimeout(b.rings, commandTimeout)
	defer cancel()
	_, err := b.db.ExecContext(ctx, ringStatement, class, baseOf(queue), rand.IntN(chairs), messages)
	b.mu.Lock()
	defer b.mu.Unlock()
	t, now := b.rung[queue], time.Now()
	if err != nil && now.Sub(t.since) < ringFor && !b.closed {
		t.messages = min(t.messages+messages, many)
		t.notUntil = now.Add(ringAgain)
	} else {
		t.notUntil = now.Add(rest)
	}
}
