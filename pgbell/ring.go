package pgbell

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// A queue is rung no sooner after a ring than this: when nobody sat, since senders
	// that have so much to do need few rings; and when somebody did, who may be on his way.
	restUnheard = 20 * time.Millisecond
	restHeard   = 5 * time.Millisecond

	// all are woken from so many messages on.
	many = 64

	// A ring that fails is repeated after a pause, as long as it may be of use.
	ringAgain = 250 * time.Millisecond
	ringFor   = 2 * time.Second

	commandTimeout = 5 * time.Second
)

// What a notification says: how many of the consumers there are meant.
const (
	one       = "1"
	everybody = "*"
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
	if !b.rings {
		b.rings = true
		b.joined.Go(b.ringAll)
	}
}

// ringAll rings until Close.
func (b *Bell) ringAll() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for b.open.Err() == nil {
		queue, messages, wait := b.due(time.Now())
		if messages > 0 {
			b.ringOne(queue, messages)
			continue
		}
		timer.Reset(wait)
		select {
		case <-b.open.Done():
		case <-b.soon:
		case <-timer.C:
		}
	}
}

// due takes a queue that is to be rung now, or says for how long there is none.
func (b *Bell) due(now time.Time) (queue string, messages int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait = time.Hour
	for name, t := range b.rung {
		left := t.notUntil.Sub(now)
		switch {
		case t.messages == 0:
		case left <= 0:
			messages, t.messages = t.messages, 0
			return name, messages, 0
		default:
			wait = min(wait, left)
		}
	}
	return "", 0, wait
}

// ringStatement notifies those who sit, from a chair on and no more than a number. A
// chair is taken if it cannot be shared; one that is free is held until the statement ends,
// by any number of rings at once. It writes nothing, and waits for nobody.
const ringStatement = `SELECT pg_notify('chnq_' || ($2::int + (i + $3::int) % 4), $4::text)
FROM generate_series(0, 3) AS i
WHERE NOT pg_try_advisory_xact_lock_shared($1::int, $2::int + (i + $3::int) % 4)
LIMIT $5::int`

// ringOne rings a queue once.
func (b *Bell) ringOne(queue string, messages int) {
	seats, share := min(messages, chairs), one
	if messages >= many {
		share = everybody
	}
	ctx, cancel := context.WithTimeout(b.open, commandTimeout)
	defer cancel()
	result, err := b.db.ExecContext(ctx, ringStatement, class, baseOf(queue), rand.IntN(chairs), share, seats)
	heard := int64(0)
	if err == nil {
		heard, _ = result.RowsAffected()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t, now := b.rung[queue], time.Now()
	switch {
	case err != nil && now.Sub(t.since) < ringFor:
		t.messages = min(t.messages+messages, many)
		t.notUntil = now.Add(ringAgain)
	case err == nil && heard > 0:
		t.notUntil = now.Add(restHeard)
	default:
		t.notUntil = now.Add(restUnheard)
	}
}
