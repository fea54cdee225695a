package consume

import (
	"context"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/internal/table"
)

// owner is the lease.Owner of a consumer's leases, and the consumer as packages claim and settle see it. Package settle
// stores settles and extensions, and owner processes their outcomes.
type owner struct {
	Observer
	of         *Consumer
	home       lease.Home
	settler    *settle.Settler
	extender   *settle.Extender
	openAcks   *openAcks
	pace       *claim.Pace
	slots      *claim.Slots // of an ordered queue; nil of a plain one
	neighbours *claim.Neighbours

	mu      sync.Mutex   // guards settled; held briefly
	settled settle.Tally // so far
}

// makeSettles makes the settler and the extender of a consumer.
func (o *owner) makeSettles() {
	cfg := &o.of.cfg
	on := func(part *session.Part) settle.Shared {
		return settle.Shared{Table: table.Table{Queue: cfg.Table, Part: part}, Traits: cfg.Table.Dialect.Traits(),
			Classify: cfg.Table.Classify, Health: cfg.Health, Times: cfg.Times}
	}
	o.settler = settle.New(settle.Config{
		Shared: on(o.of.parts.settle), Owner: o,
		Linger: settle.Linger(cfg.LeaseFor), Room: max(2*cfg.Prefetch, LeastBacklog), Isolated: cfg.Isolated.Set,
	}, o.of.ending.abandoned)
	o.extender = settle.NewExtender(settle.ExtenderConfig{
		Shared: on(o.of.parts.extend), Mover: lease.MoverOf(cfg.Values), Holder: o,
	})
}

func (o *owner) Awaited(l *lease.Lease) bool         { return o.slots != nil && o.slots.Awaited(l) }
func (o *owner) Broken(op string, err error)         { o.of.Broken(op, err) }
func (o *owner) SettleAll(leases ...*lease.Lease)    { o.settler.AddAll(leases...) }
func (o *owner) Backlogged() bool                    { return o.settler.Backlogged() }
func (o *owner) Lose(l *lease.Lease, to lease.State) { o.extender.Lose(l, to) }
func (o *owner) Held() (leases, handlers int)        { return o.of.load.held() }
func (o *owner) Freed()                              { o.of.cfg.Signals.Wake() }
func (o *owner) Taken() int64                        { return o.of.feed.Taken() }
func (o *owner) Until() ([16]byte, time.Duration)    { return o.of.membership.Until() }

// Track registers leases that may be delivered from now on, for extension.
func (o *owner) Track(leases []*lease.Lease) {
	o.of.load.leases.Add(int64(len(leases)))
	o.extender.Track(leases)
}

// Unread releases the leases of a plain queue that wait for a reader, for other consumers. In an ordered queue the
// owner of the slot would only read them again.
func (o *owner) Unread() {
	if o.slots == nil {
		o.pace.Rest(o.of.cfg.LeaseFor)
		o.of.feed.ReleaseAll()
	}
}

// PassOn wakes another consumer of a plain queue. In an ordered queue each owner of a slot is notified.
func (o *owner) PassOn() {
	if o.slots == nil {
		o.of.cfg.Signals.Debouncer.Notify(1, notify.Slots{}, false)
	}
}

// Stored counts a batch of settles, reports lost leases, and records where messages are available again.
func (o *owner) Stored(began time.Time, t settle.Tally, leases []*lease.Lease) {
	o.count(t, time.Since(began))
	var released []*lease.Lease
	var slots notify.Slots
	for _, l := range leases {
		switch err := l.Outcome(); {
		case err != nil:
			o.reportLost(l, err)
			continue
		case l.Op == lease.Ack || l.Op == lease.Dead:
			continue
		case l.Op == lease.Release:
			released = append(released, l)
		}
		if l.Message != nil {
			slots.Add(l.Message.Slot)
		}
	}
	if len(released) > 0 {
		o.of.cfg.Signals.Key.Lower(claim.PlacesOf(released))
	}
	o.pace.Progress()
	// A settle that makes messages available notifies another consumer. Exceptions are releases by a reader that
	// continues to read: a reader that releases everything would otherwise claim the same messages again without a
	// pause.
	if t.Nacked > 0 || t.Released > 0 && o.of.load.stop.Err() != nil {
		o.of.cfg.Signals.Signal(t.Nacked+t.Released, slots, false)
	}
}

// reportLost reports a lease that a settle found lost or refused.
func (o *owner) reportLost(l *lease.Lease, err error) {
	failed, ok := err.(*lease.FailedError)
	refused := ok && failed.Refused
	if !refused && err != lease.ErrLost {
		return
	}
	if report := o.Lost(l, !refused); report != nil {
		report()
	}
}

func (o *owner) count(t settle.Tally, took time.Duration) {
	if t == (settle.Tally{}) {
		return
	}
	o.Settled(t, took)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settled.Add(t)
}

func (o *owner) tally() settle.Tally {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.settled
}

// Expedite shortens the linger of settles, because a caller waits for one.
func (o *owner) Expedite() { o.settler.Expedite() }

// Settle passes a lease to the settler.
func (o *owner) Settle(ctx context.Context, l *lease.Lease) error {
	o.pace.LeaseEnded()
	return o.settler.Add(ctx, l)
}

// Extend runs a statement, unless the consumer has ended: it does not wait for expired leases, and nothing would extend
// this one later.
func (o *owner) Extend(ctx context.Context, l *lease.Lease, d time.Duration) (held bool, err error) {
	if o.extender.Ended() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.of.cfg.StatementTimeout)
	defer cancel()
	return o.extender.Extend(ctx, l, d, o.of.cfg.TryTimeout())
}

// Expire does what the extender's review does. The review might not have run yet, or might never run after a Shutdown
// that gave up.
func (o *owner) Expire(l *lease.Lease) { o.extender.Lose(l, lease.Expired) }

// Changed records which leases are no longer held, so that other messages of their keys can follow.
func (o *owner) Changed(leases ...*lease.Lease) {
	for _, l := range leases {
		if l.State() == lease.InTx && o.slots == nil {
			o.openAcks.add(l) // before l.End, which might end the consumer
		}
		if !l.End() {
			continue
		}
		if l.State() != lease.Settled {
			o.pace.LeaseEnded()
		}
		o.of.load.ended(&o.of.load.leases)
	}
	if o.slots != nil {
		o.slots.Changed(leases)
	}
}
