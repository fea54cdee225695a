package chanq

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/batch"
)

// dispatch is what a consumer of an ordered queue has besides: the lines of its messages
// (lines.go), and the slots that it owns (slots.go). The claimer fills the lines
// (claim_ordered.go). Its goroutines: run, which moves leases whose turn it is to the
// channel, and which the supervisor joins with the claimer; and watch, which looks after those that were acked in a
// transaction for as long as the consumer has leases.
type dispatch[T any] struct {
	c *shardConsumer[T]

	mu    sync.Mutex // guards lines; held for moments, nothing is called under it
	lines *lines

	ready   chan struct{} // of capacity 1: a lease is ready
	recall  chan struct{} // of capacity 1: a slot is to be given back
	changed chan struct{} // of capacity 1: claims may depend on what has changed
	txs     chan struct{} // of capacity 1: a lease was acked in a transaction

	sent   atomic.Int64 // leases on the channel, so far
	inHand atomic.Int64 // of run
	wanted atomic.Bool  // lines.wanted, for the claimer
	waits  atomic.Bool  // some lease waits for its line

	// Of the claimer.
	tenure   *tenure
	answered bool // a look, after a claim of one message that failed
	horizon  horizon
	salt     int64
	rows     *orderedRows  // for the next claim; nil: none yet
	sweeps   time.Duration // between two looks from the beginning
	rest     time.Duration // no statement of the tenure before, after one that failed
	asked    time.Duration // when the held lines were last asked for
}

func newDispatch[T any](c *shardConsumer[T]) *dispatch[T] {
	d := &dispatch[T]{
		c:     c,
		lines: newLines(c.queue.lineConfig(c.cfg.Prefetch, c.cfg.LeaseFor)),
		ready: make(chan struct{}, 1), recall: make(chan struct{}, 1),
		changed: make(chan struct{}, 1), txs: make(chan struct{}, 1),
		horizon: horizon{endless: c.queue.sql.Horizon().Text == ""},
		salt:    newSalt(), sweeps: sweepEvery,
	}
	table := slotStatements{c.queue, c.member.ID, d.runIdle}
	d.tenure = newTenure(c.queue.cfg.Slots, c.member.ID, &c.here, table, d, c.queue.wake)
	return d
}

// change changes the lines, and does what follows: leases are given back to the database,
// others are told that they are lost, and whoever waits is woken.
func (d *dispatch[T]) change(f func(*lines)) {
	var back, lost []*lease
	var ready, wanted, knew bool
	d.with(func(ls *lines) {
		f(ls)
		back, lost = ls.collect()
		ready, wanted, knew = len(ls.ready) > 0, ls.wanted, ls.knew
		ls.wanted, ls.knew = false, false
		d.waits.Store(ls.waiting > 0)
	})
	d.giveBack(back)
	for _, l := range lost {
		d.c.keeper.loseLease(l, leaseLost)
	}
	if ready {
		notify(d.ready)
	}
	if wanted {
		d.wanted.Store(true)
	}
	if wanted || knew {
		notify(d.changed)
	}
}

// with has f use the lines, under their lock.
func (d *dispatch[T]) with(f func(*lines)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.lines)
}

// hurry ends the claimer's pause.
func (d *dispatch[T]) hurry() {
	d.wanted.Store(true)
	notify(d.changed)
}

// giveBack has leases released that no reader has.
func (d *dispatch[T]) giveBack(leases []*lease) {
	back := leases[:0]
	for _, l := range leases {
		if l.takeBack() {
			back = append(back, l)
		}
	}
	if len(back) > 0 {
		d.c.settler.addAll(back...)
	}
}

// moved hears of what becomes of leases: see leaseOwner.
func (d *dispatch[T]) moved(leases []*lease) {
	d.change(func(ls *lines) {
		now := monotonic()
		for _, l := range leases {
			ls.moved(l, now)
		}
	})
	if len(leases) > 0 && leases[0].state.Load() == leaseInTx { // it is the only one
		notify(d.txs)
	}
}

// awaits reports whether others wait for the settle of a lease: behind it, or for its turn.
func (d *dispatch[T]) awaits(l *lease) (others bool) {
	if !d.waits.Load() {
		return false
	}
	d.with(func(*lines) {
		t := l.spot
		others = t != nil && t.state == spotOut && (len(t.line.spots) > 1 || len(t.line.slot.blocked) > 0)
	})
	return others
}

// buffered is how many leases are ready for readers and not on the channel yet, and how
// many wait for their line.
func (d *dispatch[T]) buffered() (ready, waiting int) {
	d.with(func(ls *lines) { ready, waiting = len(ls.ready), ls.waiting })
	return ready + int(d.inHand.Load()), waiting
}

// stats fills in what is of ordered queues.
func (d *dispatch[T]) stats(s *ConsumerStats) {
	ready, waiting := d.buffered()
	s.Buffered += ready
	s.Waiting = waiting
	d.with(func(ls *lines) { s.Slots, s.StalledSlots = len(ls.slots), ls.stalled() })
}

// run moves leases to the channel until Stop, and then gives back what it has in hand.
func (d *dispatch[T]) run() {
	var hand []*Lease[T]
	for d.c.stop.Err() == nil {
		d.inHand.Store(int64(len(hand)))
		if len(hand) == 0 {
			if hand = d.next(hand[:0]); len(hand) == 0 {
				select {
				case <-d.ready:
				case <-d.recall:
					hand = d.recalled(hand)
				case <-d.c.stop.Done():
				}
				continue
			}
		}
		l := hand[0]
		if !d.tenure.alive() {
			d.giveBack([]*lease{l.lease})
			hand = hand[1:]
			continue
		}
		select {
		case d.c.out <- l:
			d.sent.Add(1)
			hand = hand[1:]
		case <-d.recall:
			hand = d.recalled(hand)
		case <-d.c.stop.Done():
		}
	}
	for _, l := range hand {
		d.giveBack([]*lease{l.lease})
	}
	d.inHand.Store(0)
}

// handful is how many leases are taken from the lines at a time.
const handful = 64

// next takes leases whose turn it is. From here on their MaxExtend runs.
func (d *dispatch[T]) next(hand []*Lease[T]) []*Lease[T] {
	most := min(handful, d.c.cfg.Prefetch)
	d.with(func(ls *lines) {
		for len(hand) < most {
			_, message := ls.next()
			if message == nil {
				break
			}
			hand = append(hand, message.(*Lease[T]))
		}
		d.inHand.Store(int64(len(hand)))
	})
	if len(hand) > 0 {
		d.c.idleness.delivers()
	}
	until := monotonic() + d.c.cfg.MaxExtend
	for _, l := range hand {
		l.lease.until.Store(int64(until))
	}
	return hand
}

// recalled takes back what is on the channel, and in hand, of slots that are to be given
// back, and returns the rest. Of a line there is one lease at most, so no order is lost.
func (d *dispatch[T]) recalled(hand []*Lease[T]) []*Lease[T] {
	mine := len(hand)
	hand = takeAll(d.c.out, hand)
	d.sent.Add(int64(mine - len(hand)))
	keep := hand[:0]
	var back []*lease
	d.with(func(*lines) {
		for _, l := range hand {
			if l.lease.spot.leaving() {
				back = append(back, l.lease)
			} else {
				keep = append(keep, l)
			}
		}
	})
	d.giveBack(back)
	return keep
}

// leaving reports a spot of a slot that is to be given back, or that is gone. It is under the lock of the lines.
func (t *spot) leaving() bool { return t == nil || t.line.slot.closing }

// watch looks after leases that were acked in transactions, until ctx ends: what is gone was
// committed, and the next of its line goes.
func (d *dispatch[T]) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	pause := batch.Backoff{Low: firstLook, High: time.Second}
	for ctx.Err() == nil {
		began := monotonic()
		var due []*lease
		next := began + time.Hour
		d.with(func(ls *lines) { due, next = ls.looks(began) })
		if len(due) > 0 {
			seen, err := d.c.queue.look(ctx, d.c.notes, d.c.cfg.tryTimeout(), due)
			if err != nil {
				mind(d.c, "look", err)
				batch.Sleep(ctx, pause.Pause())
				continue
			}
			pause.Reset()
			d.change(func(ls *lines) {
				for _, l := range due {
					ls.looked(l, seen.of(l.item), began)
				}
			})
			continue
		}
		timer.Reset(next - began)
		select {
		case <-d.txs:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// returned is told that the handler of a lease that is in a transaction has returned: it is
// likely to be committed.
func (d *dispatch[T]) returned(l *lease) {
	hurry := false
	d.with(func(ls *lines) { hurry = ls.hurry(l, monotonic()) })
	if hurry {
		notify(d.txs)
	}
}

// The dispatch as the user of slots: see slotUser.

func (d *dispatch[T]) slotTaken(slot int, fence int64) {
	d.change(func(ls *lines) { ls.open(slot, fence, d.c.queue.cfg.keysOf(slot), monotonic()) })
}

func (d *dispatch[T]) slotLeaving(slot int) {
	d.change(func(ls *lines) { ls.close(slot) })
	notify(d.recall)
}

func (d *dispatch[T]) slotGone(slot int) {
	d.change(func(ls *lines) { ls.drop(slot) })
	notify(d.recall)
}

func (d *dispatch[T]) handedOut(slot int) (n int) {
	d.with(func(ls *lines) {
		if s := ls.slot(slot); s != nil {
			n = s.out
		}
	})
	return n
}
