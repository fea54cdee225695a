package settle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// ExtenderConfig configures an Extender.
type ExtenderConfig struct {
	Shared
	Mover *lease.Mover // between the channel and the readers, or nil
	Holder
}

// Holder is the consumer of an Extender.
type Holder interface {
	// Taken returns how many leases readers have taken from the consumer's channel.
	Taken() int64
	// Until returns the ID of the consumer in the database, and when all of its leases end at the latest.
	Until() (id [16]byte, ends time.Duration)
	// Lost is called when a lease is no longer held: it has expired, or is lost in the database. The returned function,
	// if not nil, is called later; only Close waits for it.
	Lost(l *lease.Lease, confirmed bool) (report func())
	// Unread is called when readers have taken no lease for MaxExtend although leases wait.
	Unread()
}

// Extender tracks the leases that a consumer holds, delivered or in the buffer, and leases whose settle is not stored
// yet. It extends them, and ends those whose time has passed.
//
// The leases are reviewed every third of LeaseFor. A lease with less than five sixths left is extended, so that at
// least half of its time is left for the statements. A lease is not extended after AckTx (its row is locked by the
// caller's transaction), nor after MaxExtend. MaxExtend counts from the last review that found the lease in the buffer,
// or offered by the Mover, which is up to a third of LeaseFor before a reader took it. Leases in the buffer do not
// expire, because that would count as a crash. The lease that a Mover offers expires when readers have taken none for
// MaxExtend, because it cannot be released.
//
// A statement takes at most a sixth of LeaseFor, whatever the driver does, and the next one uses another session: a
// hanging connection costs time but no lease. The database keeps the later of two ends, so extensions may overlap, and
// a delayed extension does no harm.
type Extender struct {
	cfg ExtenderConfig

	mu      sync.Mutex       // guards what follows
	tracked [][]*lease.Lease // one slice per claim, so that registering costs one append
	left    int              // how many leases may follow until Track drops ended ones

	// Used by Run.
	taken int64         // at the last review
	moved time.Duration // when readers last took a lease, or none waited, or Unread was called

	turn   chan struct{} // held by a try of Lease.Extend, so that one session is left to the Extender
	wake   chan struct{} // a lease needs an extension before the next tick
	stop   context.Context
	end    context.CancelFunc
	writer *batch.Writer[*lease.Extension]
	losses base.Events
}

// Kinds of extensions. SQLite rewrites the whole row to extend its lease, so heavy rows have their own statements,
// after those of the others.
const (
	light = iota
	heavy
)

// NewExtender returns an Extender that extends nothing before Run.
func NewExtender(cfg ExtenderConfig) *Extender {
	x := &Extender{cfg: cfg, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), moved: base.Now(),
		left: minSweep}
	x.stop, x.end = context.WithCancel(context.Background())
	// While one worker searches for extensions that fail alone, the other one continues with those that are due.
	x.writer = batch.New(batch.Config[*lease.Extension]{
		Full:    []int{light: max(1, cfg.Traits.AckItems), heavy: 1},
		Workers: 2, Moment: x.cfg.RenewTimeout() / 2, Longest: x.cfg.RenewTimeout(),
		Loop: batch.Loop{Health: cfg.Health, Classify: cfg.Classify, Waited: table.Unconnected,
			Timeout: x.cfg.RenewTimeout(), Longest: cfg.LeaseFor / 6},
		Write: x.write, Absent: x.absent, Done: x.done,
	})
	return x
}

// minSweep avoids useless sweeps of small numbers of leases.
const minSweep = 2048

// Track registers the leases of one claim. Between ticks a fast reader settles far more leases than are ever held at
// the same time. Track drops ended leases when they might be half of all, so that their messages do not stay in memory.
// The Extender owns the slice from here on.
func (x *Extender) Track(leases []*lease.Lease) {
	first := leases[0]
	x.mu.Lock()
	x.tracked = append(x.tracked, leases)
	if x.left -= len(leases); x.left <= 0 {
		x.drop((*lease.Lease).Ended)
	}
	x.mu.Unlock()
	if x.due(first, base.Now()) { // the claim was slow
		x.Wake()
	}
}

// Wake triggers a review now.
func (x *Extender) Wake() { base.Signal(x.wake) }

// Held returns the leases that are held, in the buffer or by a reader, and for which only is true.
func (x *Extender) Held(only func(*lease.Lease) bool) (held []*lease.Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, leases := range x.tracked {
		for _, l := range leases {
			if l.State() == lease.Held && !l.Ended() && only(l) {
				held = append(held, l)
			}
		}
	}
	return held
}

// drop removes the leases for which gone is true. mu is held.
func (x *Extender) drop(gone func(*lease.Lease) bool) {
	kept := 0
	for i, leases := range x.tracked {
		x.tracked[i] = slices.DeleteFunc(leases, gone)
		kept += len(x.tracked[i])
	}
	x.tracked = slices.DeleteFunc(x.tracked, func(leases []*lease.Lease) bool { return len(leases) == 0 })
	x.left = max(kept, minSweep-kept)
}

// due reports that a lease should be extended now.
func (x *Extender) due(l *lease.Lease, now time.Duration) bool {
	deadline := l.Period.Deadline()
	if deadline-now >= x.cfg.LeaseFor*5/6 || now >= l.Period.Until() {
		return false
	}
	_, ends := x.cfg.Until()
	return deadline < ends
}

// Run extends leases until End.
func (x *Extender) Run() {
	var writer base.Group
	writer.Go(func() { x.writer.Run(x.stop) })
	defer writer.Wait()
	tick := x.cfg.LeaseFor / 3
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-x.stop.Done():
			return
		case <-timer.C:
		case <-x.wake:
		}
		due, nearest := x.review(base.Now())
		x.extendAll(due)
		// The end of a lease that could not be extended is reported in time.
		timer.Reset(min(tick, max(nearest-base.Now(), time.Millisecond)))
	}
}

// Ended reports that End was called.
func (x *Extender) Ended() bool { return x.stop.Err() != nil }

// End makes Run return. Close, after Run has returned, waits until all losses are reported.
func (x *Extender) End()   { x.end() }
func (x *Extender) Close() { x.losses.Close() }

// review drops leases that are no longer held, and expires leases whose time has passed. It returns the leases to
// extend that are not in the writer, and the nearest deadline of the rest.
func (x *Extender) review(now time.Duration) (due []*lease.Lease, nearest time.Duration) {
	x.keepUnread(now)
	nearest = now + x.cfg.LeaseFor
	var expired []*lease.Lease
	x.mu.Lock()
	x.drop(func(l *lease.Lease) bool {
		state, deadline := l.State(), l.Period.Deadline()
		held := state == lease.Held
		switch {
		case l.Ended():
			return true
		case held && now >= deadline:
			expired = append(expired, l)
		case (held || state == lease.Settling) && x.due(l, now) && !pending(l):
			due = append(due, l)
		}
		if held {
			nearest = min(nearest, deadline)
		}
		return false
	})
	x.mu.Unlock()
	for _, l := range expired {
		x.Lose(l, lease.Expired)
	}
	if len(expired) > 0 {
		nearest = now // review again immediately: expired leases no longer count
	}
	return due, nearest
}

// keepUnread makes MaxExtend of the leases that wait for a reader count from now, and calls Unread if it is due.
func (x *Extender) keepUnread(now time.Duration) {
	taken := x.cfg.Taken()
	id, offers, last := x.cfg.Mover.Waits()
	if taken != x.taken {
		x.taken, x.moved = taken, now
	}
	x.moved = max(x.moved, last)
	waiting := x.Held(func(l *lease.Lease) bool {
		buffered, offered := l.Number.Waits(taken), offers && l.Item.ID == id
		if buffered || offered && now-last < x.cfg.MaxExtend {
			l.Period.KeepUntil(now + x.cfg.MaxExtend)
		}
		return buffered || offered
	})
	switch {
	case len(waiting) == 0:
		x.moved = now
	case now-x.moved >= x.cfg.MaxExtend:
		x.moved = now
		x.cfg.Unread()
	}
}

// Lose moves a lease to Expired or Lost, and reports that if it was held.
func (x *Extender) Lose(l *lease.Lease, to lease.State) {
	if !l.Lose(to) {
		return
	}
	if report := x.cfg.Lost(l, to == lease.Lost); report != nil {
		x.losses.Enqueue(report)
	}
}

// extendAll passes leases to the writer: light ones by their deadlines, then heavy ones by their sizes.
func (x *Extender) extendAll(leases []*lease.Lease) {
	slices.SortStableFunc(leases, func(a, b *lease.Lease) int {
		return cmp.Or(cmp.Compare(a.Rare.Read().Heavy, b.Rare.Read().Heavy),
			cmp.Compare(a.Period.Deadline(), b.Period.Deadline()))
	})
	for _, l := range leases {
		d := l.Rare.Write()
		if d.Extend == nil {
			d.Extend = &lease.Extension{Lease: l}
			if d.Heavy > 0 {
				d.Extend.Kind = heavy
			}
		}
		d.Extend.Pending.Store(true)
	}
	if len(leases) > 0 {
		_ = x.writer.AddAll(len(leases),
			func(i int) *lease.Extension { return leases[i].Rare.Read().Extend }, batch.Now)
	}
}

// pending reports that the writer has an extension of the lease.
func pending(l *lease.Lease) bool {
	extend := l.Rare.Read().Extend
	return extend != nil && extend.Pending.Load()
}

// final reports that a lease of an ordered queue has ended here and cannot be extended any more: the consumer, or the
// one that has taken the slot, makes its message ready again whatever its row says. Also, the consumer might have
// another membership by then.
func final(l *lease.Lease) bool {
	return l.Message != nil && (l.State() == lease.Expired || base.Now() >= l.Period.Deadline())
}

// prolong notes an extension, unless the lease is final.
func prolong(l *lease.Lease, end time.Duration) (held bool) {
	if final(l) {
		return false
	}
	l.Period.Prolong(end)
	if l.State() == lease.InTx { // its owner has noted the former deadline, or reads this one
		l.Home.Owner.Changed(l)
	}
	return true
}

// write extends leases in one statement. It leaves out leases that are final, that were settled meanwhile, or that were
// acked in a transaction, which locks their rows: they count as written.
func (x *Extender) write(ctx context.Context, extensions []*lease.Extension,
	skipLocked bool) (written []*lease.Extension, err error) {
	item := func(e *lease.Extension) sqlbatch.Item { return e.Lease.Item }
	slices.SortFunc(extensions, func(a, b *lease.Extension) int { return table.CompareItems(item(a), item(b)) })
	items := make([]sqlbatch.Item, 0, len(extensions))
	start := base.Now()
	consumer, ends := x.cfg.Until() // before final: it is the consumer of the leases that are not
	for _, e := range extensions {
		if s := e.Lease.State(); (s == lease.Held || s == lease.Settling) && !final(e.Lease) {
			items = append(items, e.Lease.Item)
		} else {
			written = append(written, e)
		}
	}
	if len(items) == 0 {
		return written, batch.ErrNotAsked
	}
	changed, _, err := x.cfg.Table.Items(ctx, x.cfg.Table.Build(skipLocked).Extend(consumer, items, x.cfg.LeaseFor),
		make([]sqlbatch.Item, 0, len(items)))
	if err != nil {
		return written, err
	}
	held := front(extensions, changed, item)
	for _, e := range held {
		prolong(e.Lease, min(lease.After(start, x.cfg.LeaseFor), ends))
	}
	return append(written, held...), nil
}

// absent looks up leases that an extension did not return. It leaves out leases whose rows are locked.
func (x *Extender) absent(ctx context.Context,
	extensions []*lease.Extension) (outcomes []batch.Outcome[*lease.Extension], err error) {
	ids := make([][16]byte, len(extensions))
	for i, e := range extensions {
		ids[i] = e.Lease.Item.ID
	}
	seen, err := x.cfg.Table.Look(ctx, x.cfg.RenewTimeout(), ids)
	if err != nil {
		return nil, err
	}
	for _, e := range extensions {
		if row := e.Lease.Row(seen); row != lease.RowHeld {
			row.Cancels(e.Lease)
			outcomes = append(outcomes, batch.Outcome[*lease.Extension]{Item: e, Err: lease.ErrLost})
		}
	}
	return outcomes, nil
}

// done ends leases that are lost. A lease that is held and was not extended for another reason is due at the next tick.
func (x *Extender) done(_ time.Time, outcomes []batch.Outcome[*lease.Extension]) {
	for _, o := range outcomes {
		l := o.Item.Lease
		switch state := l.State(); {
		case o.Err == nil:
		case o.Err != lease.ErrLost:
		case state == lease.Expired: // it has expired meanwhile, which was reported
			l.Lose(lease.Lost)
		default:
			// Lose ignores a lease that is being settled. The settle might have removed the row, and determines the
			// outcome.
			x.Lose(l, lease.Lost)
		}
		o.Item.Pending.Store(false)
	}
}

// Extend makes a lease last at least d from now. It repeats the statement while another transaction has locked the row,
// until ctx ends, and fails immediately in any other case. A try takes up to timeout, and holds the turn of
// Lease.Extend, so that one session is left to the writer.
func (x *Extender) Extend(ctx context.Context, l *lease.Lease, d, timeout time.Duration) (held bool, err error) {
	defer func() {
		if x.due(l, base.Now()) { // the deadline is near
			x.Wake()
		}
	}()
	pause := batch.Backoff{Low: batch.LowPause, High: batch.HighPause}
	for skip := false; ; skip = true {
		select {
		case x.turn <- struct{}{}:
		case <-ctx.Done():
			return false, &lease.FailedError{Op: "extend", Err: context.Cause(ctx)}
		}
		var row lease.RowState
		held, row, err = x.tryExtend(ctx, l, d, timeout, skip)
		<-x.turn
		switch {
		case err != nil && x.cfg.Classify(err) != sqlbatch.RolledBack:
			return false, err
		case err == nil && (held || row != lease.RowHeld):
			return held, nil
		}
		if batch.Sleep(ctx, pause.Pause()); ctx.Err() != nil {
			return false, &lease.FailedError{Op: "extend", Err: fmt.Errorf("%w: %w", ErrLocked, context.Cause(ctx))}
		}
	}
}

// tryExtend reports that the lease was extended, or else the state of its row, which is not looked up if the lease is
// final.
func (x *Extender) tryExtend(ctx context.Context, l *lease.Lease, d, timeout time.Duration, skip bool) (held bool,
	row lease.RowState, err error) {
	start := base.Now()
	consumer, ends := x.cfg.Until()
	if final(l) { // after Consumer: see write
		return false, lease.RowTaken, nil
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	st := x.cfg.Table.Build(skip).Extend(consumer, []sqlbatch.Item{l.Item}, d)
	changed, _, err := x.cfg.Table.Items(within, st, nil)
	if err != nil {
		return false, 0, err
	}
	if len(changed) == 1 {
		if !prolong(l, min(lease.After(start, d), ends)) {
			return false, lease.RowTaken, nil
		}
		l.Period.KeepUntil(start + d) // if the membership ends sooner, it is extended again
		return true, 0, nil
	}
	seen, err := x.cfg.Table.Look(ctx, timeout, [][16]byte{l.Item.ID})
	if row = l.Row(seen); err == nil {
		row.Cancels(l)
	}
	return false, row, err
}
