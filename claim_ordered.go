package chanq

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// The claimer of an ordered queue: as that of a plain one (claim.go), but that it claims
// from the slots that it owns, what the lines ask for (lines_plan.go), and tends its
// slots in between. What it finds goes into the lines, and from there to readers.
//
// While nothing comes it looks at the slots instead of claiming: one statement tells
// whether there is something to claim in those it owns, and who owns the others.

// sweepEvery is how often slots are looked through from the beginning, if that is quick: a
// twentieth of the time at most.
const sweepEvery = time.Second

// heldMost is how many keys of a slot the dead may hold. Where there are more, nothing of
// the slot is handed out.
const heldMost = 10_000

// heldEvery is how often it is asked whether what the dead hold is free.
const heldEvery = time.Second

// claimAll claims until Stop. supervise then releases what is on the channel, and closes it. What
// waits goes back with its slots: see vacate.
func (d *dispatch[T]) claimAll() {
	c := d.c
	idle := batch.Backoff{Low: c.cfg.PollMin, High: c.cfg.PollMax}
	loop := batch.Loop{Health: &c.health, Classify: c.queue.classify}
	c.connect()
	for {
		n := c.waitForRoom()
		if n == 0 {
			return
		}
		asked, got, failure := d.round(&loop, n)
		if failure == nil && got == 0 && c.idleness != nil {
			if asked > 0 {
				c.count(func(s *ConsumerStats) { s.EmptyClaims++ })
			}
			var stopped bool
			if stopped, asked, failure = d.stopIdle(&loop, n); stopped {
				return
			}
		}
		if failure != nil && c.idleness != nil {
			c.idleness.notIdle(c)
		}
		switch {
		case failure != nil && c.stop.Err() != nil && asked == 0:
		case failure != nil:
			if isPermanent(failure.Class) {
				c.broken(c.queue.fail("claim", failure.Err))
				return
			}
			pause := loop.Failed(c.abandoned, failure)
			d.failed(failure, asked > 0)
			if asked > 0 {
				d.shrink(asked, failure)
			}
			batch.Sleep(c.stop, pause)
		case got == 0 && c.idleness != nil:
			d.pause(max(time.Millisecond, d.untilDue(idle.Poll())), nil)
		case got == asked && asked > 0:
			idle.Reset()
			if c.seat.claimed(true) {
				c.rise()
			}
		case got > 0:
			idle.Reset()
			c.seat.claimed(false)
			pause := idle.Pause()
			if got >= worthwhile {
				pause /= 4
			}
			if c.seat.stands {
				pause = min(pause, shortPause)
			}
			if rung := d.pause(pause, nil); !rung && c.seat.quiet() && c.idleness == nil {
				d.waitForMessage(&idle, false)
			}
		default:
			if asked > 0 {
				c.count(func(s *ConsumerStats) { s.EmptyClaims++ })
			}
			if c.seat.vain() { // slots may be free, or it lies below the marks
				d.tenure.hurry()
				d.change(func(ls *lines) { ls.sweep(monotonic()) })
			}
			if asked == 0 {
				d.pause(d.untilDue(c.cfg.PollMax), nil)
			} else {
				d.waitForMessage(&idle, true)
			}
		}
	}
}

// round tends the slots, samples the horizon, and claims, each if it is due.
func (d *dispatch[T]) round(loop *batch.Loop, n int) (asked, got int, failure *batch.Failure) {
	c := d.c
	if _, hurried := c.ears.heard(); hurried {
		d.tenure.hurry()
		d.change(func(ls *lines) { ls.sweep(monotonic()) })
	}
	began := time.Now()
	_, err := d.tend(c.stop)
	if err == nil {
		err = d.sample(c.stop, false)
	}
	if err == nil {
		c.seat.answer()
		if asked, got, failure = d.claim(loop, n); failure != nil {
			return asked, 0, failure
		}
		began = time.Now()
		err = d.askHeld(c.stop)
	}
	if err != nil { // not of the claim
		return 0, 0, &batch.Failure{Err: err, Class: c.queue.classify(err), Began: began}
	}
	return asked, got, nil
}

// failed draws the consequences of a statement that failed. One that may run yet may lease
// messages that nobody knows of; and where the database was away, another may have taken
// its place that lags.
func (d *dispatch[T]) failed(f *batch.Failure, claim bool) {
	var notRun *session.NotRunError
	switch {
	case f.Class == sqlbatch.RolledBack:
		return
	case claim && !errors.As(f.Err, &notRun):
		d.tenure.doubt()
	}
	d.forget()
}

// forget has everything read again.
func (d *dispatch[T]) forget() {
	d.horizon.forget()
	d.change(func(ls *lines) { ls.forget(monotonic()) })
}

// tend tends the slots, where something is due, and tells which are drained. It returns
// the look, if there was one.
func (d *dispatch[T]) tend(ctx context.Context) (*slotLook, error) {
	now := monotonic()
	var drained []int
	d.with(func(ls *lines) { drained = ls.leaving() })
	for _, slot := range drained {
		d.tenure.drained(slot)
	}
	if now < d.rest || d.tenure.wait() > 0 {
		return nil, nil
	}
	var parts []sqlbatch.SlotPart
	d.with(func(ls *lines) { parts = ls.view(now) })
	look, err := d.tenure.tend(ctx, parts)
	if err != nil {
		d.rest = now + slotsSoon
	}
	if look != nil && err == nil {
		d.c.count(func(s *ConsumerStats) { s.Looks++ })
		d.looked(linePlan{parts: parts}, monotonic()-now)
		if !look.any || look.due > 0 {
			d.change(func(ls *lines) { ls.viewed(parts, now, d.sweeps) })
		}
	}
	return look, err
}

// sample samples the horizon, if that is due.
func (d *dispatch[T]) sample(ctx context.Context, idle bool) error {
	now := monotonic()
	if !d.horizon.due(now, idle) {
		return nil
	}
	var drawn int64
	var senders string
	err := d.runIdle(ctx, d.c.queue.sql.Horizon(), func(rows *sql.Rows) error { return rows.Scan(&drawn, &senders) })
	if err == nil && d.horizon.sampled(drawn, senders, now) {
		d.change(func(ls *lines) { ls.forget(now) })
	}
	return err
}

// runIdle runs a statement on the session of claims.
func (d *dispatch[T]) runIdle(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.c.claimPatience())
	defer cancel()
	run := d.c.sessions.RunPatient
	if d.c.flow.atWork {
		run = d.c.sessions.Run
	}
	err := run(ctx, st, scan)
	mind(d.c, "claim", err)
	return err
}

// claim leases up to n messages of what the lines ask for, and puts what it finds into
// them. It returns how many rows it asked for, none if there was nothing to claim, and how
// many it found. It is not cancelled by Stop.
func (d *dispatch[T]) claim(loop *batch.Loop, n int) (asked, got int, failure *batch.Failure) {
	c := d.c
	start, until := monotonic(), d.tenure.until()
	plan, claim := d.plan(n, start)
	if len(plan.parts) == 0 {
		return 0, 0, nil
	}
	asked = claim.Rows
	if !plan.probe && !c.caution.wary { // what it has to pass takes nothing from what it leases
		claim.Rows = min(claim.Rows+plan.known, c.queue.dialect.Traits().ClaimRows)
	}
	rows := d.takeRows()
	failure = loop.Try(c.abandoned, func(context.Context) error { return c.runClaim(c.queue.sql.ClaimSlots(claim), rows.scan) })
	if failure != nil {
		return asked, 0, failure
	}
	took := monotonic() - start
	d.looked(plan, took)
	c.flow.atWork = len(rows.rows) > 0
	leases := buildLeases[T](c.queue, rows.rows, c, min(deadlineAfter(start, c.cfg.LeaseFor), until), math.MaxInt64)
	if claimed := len(leases); claimed > 0 {
		d.answered = false
		c.size.Worked(asked, took, c.claimPatience())
		c.flow.lastClaim, c.flow.meanBytes = claimed, max(1, rows.bytes/claimed)
		c.count(func(s *ConsumerStats) { s.Claims++; s.Claimed += int64(claimed) })
	}
	d.deliver(leases, rows, plan, claim.Suspects)
	if len(leases) > 0 {
		call(c.queue.cfg.Hooks.Claimed, ClaimedEvent{Queue: c.queue.label, Messages: len(leases), Bytes: rows.bytes, Took: took})
	}
	if got = len(leases); rows.more() {
		got = asked // whatever is left of a slot, the next claim is worth it
	}
	d.giveRows(rows)
	return asked, got, nil
}

// looked notes how long a claim or a look took: looks from the beginning take a twentieth of
// the time at most.
func (d *dispatch[T]) looked(p linePlan, took time.Duration) {
	if !slices.ContainsFunc(p.parts, func(part sqlbatch.SlotPart) bool { return part.From == 0 }) {
		return
	}
	if d.sweeps = max(sweepEvery, surveyShare*took); d.sweeps > sweepEvery {
		d.change(func(ls *lines) { ls.postpone(p, monotonic()+d.sweeps) })
	}
}

// plan is the next claim where there is room for n messages.
func (d *dispatch[T]) plan(n int, now time.Duration) (p linePlan, claim sqlbatch.SlotClaim) {
	c := d.c
	rows, suspects, lapses := c.caution.ask(n)
	owned := d.tenure.owned()
	d.change(func(ls *lines) { ls.own(owned); p = ls.plan(now, d.horizon.at(), d.sweeps, c.caution.wary && suspects) })
	if p.spare {
		rows, suspects, lapses = n, false, c.caution.least
	}
	p.spare = !suspects
	d.salt = nextSalt(d.salt)
	return p, sqlbatch.SlotClaim{
		Rows: rows, Lease: c.cfg.LeaseFor, Member: c.member.ID, Salt: d.salt,
		Suspects: suspects, Lapses: lapses, Parts: p.parts, Mine: p.mine,
	}
}

// deliver has the keeper hold new leases, and puts them into their lines. Those of
// suspects that are too many are given back before the one that is kept can be delivered.
func (d *dispatch[T]) deliver(leases []*Lease[T], rows *orderedRows, p linePlan, askedForSuspects bool) {
	c := d.c
	if c.held.Add(int64(len(leases))); len(leases) > 0 {
		c.idleness.delivers()
	}
	holds := make([]*lease, len(leases))
	var aside []*lease
	for i, l := range leases {
		holds[i] = l.lease
		row := rows.leased[i]
		rows.lines[row].lease, rows.lines[row].message = l.lease, l
		if l.lease.state.Load() == leaseSettling {
			aside = append(aside, l.lease)
		}
	}
	back := c.caution.found(holds, askedForSuspects)
	for _, l := range back {
		l.takeBack()
	}
	if len(holds) > 0 {
		c.keeper.hold(holds)
	}
	if len(back) > 0 && !c.setBack(back) {
		for _, l := range leases { // it cannot be told from the others; holds is the keeper's by now
			if l.lease.suspect && l.lease.takeBack() {
				aside = append(aside, l.lease)
			}
		}
	}
	d.change(func(ls *lines) { ls.claimed(p, rows.lines, rows.ends, monotonic()) })
	for _, row := range rows.lines {
		d.horizon.claimed(row.seq)
	}
	for _, part := range p.parts {
		if !rows.walked(part.Slot) {
			d.tenure.unscanned(part.Slot)
		}
	}
	if len(aside) > 0 {
		d.sent.Add(int64(len(aside))) // they count as taken: see Consumer.deliver
		c.settler.addAll(aside...)
	}
}

// askHeld asks which lines the dead hold, where that must be known, and once a second while
// there are any.
func (d *dispatch[T]) askHeld(ctx context.Context) error {
	now := monotonic()
	if !d.lines.config.holds {
		return nil
	}
	again := now-d.asked >= heldEvery
	var slots []int
	d.with(func(ls *lines) { slots = ls.asking(again) })
	if again {
		d.asked = now
	}
	if len(slots) == 0 {
		return nil
	}
	held, err := d.c.queue.held(ctx, slots, d.runIdle)
	if err != nil {
		return err
	}
	d.change(func(ls *lines) {
		for _, slot := range slots {
			if len(held[slot]) < heldMost {
				ls.allow(slot, held[slot], monotonic())
			}
		}
	})
	return nil
}

// held returns the keys that dead messages hold, for each slot.
func (q *queue) held(ctx context.Context, slots []int, run func(context.Context, sqlbatch.Statement, func(*sql.Rows) error) error) (map[int]map[lineKey]bool, error) {
	held := make(map[int]map[lineKey]bool, len(slots))
	for _, slot := range slots {
		held[slot] = map[lineKey]bool{}
	}
	err := run(ctx, q.sql.Held(slots, heldMost), func(rows *sql.Rows) error {
		var slot int
		var key []byte
		if err := rows.Scan(&slot, &key); err != nil {
			return err
		}
		held[slot][lineKey{string(key), true}] = true
		return nil
	})
	return held, err
}

// shrink makes the next claim smaller, if the size of this one, of n messages, may be
// why it failed. A claim of one that fails twice, while the database answers a look
// in between, has met a message that cannot be read.
func (d *dispatch[T]) shrink(n int, f *batch.Failure) {
	_, late := f.Err.(*lateError)
	switch {
	case !late && f.Class != sqlbatch.BadRow:
		d.answered = false
	case n > 1:
		d.c.size.Failed(n)
	case !d.answered:
		d.c.size.Failed(1)
		d.answered = d.answers() == nil
	default:
		d.answered = false
		d.claimBlind(f.Err)
	}
}

// claimBlind claims one message without its contents, and counts that as a failed
// attempt: due again after the Backoff, or dead. What fails here is tried again.
func (d *dispatch[T]) claimBlind(cause error) {
	c := d.c
	if err := d.answers(); err != nil { // after the last failure the slots are to be taken anew
		return
	}
	start, until := monotonic(), d.tenure.until()
	plan, claim := d.plan(1, start)
	claim.Blind = true
	rows := orderedRows{}
	if len(plan.parts) == 0 || c.runClaim(c.queue.sql.ClaimSlots(claim), rows.scan) != nil {
		d.tenure.doubt()
		return
	}
	for i, at := range rows.leased {
		l := d.unread(&rows.rows[i], min(deadlineAfter(start, c.cfg.LeaseFor), until), cause)
		rows.lines[at].lease = l
		c.held.Add(1)
		c.idleness.delivers()
		c.keeper.hold([]*lease{l})
	}
	d.change(func(ls *lines) { ls.claimed(plan, rows.lines, rows.ends, monotonic()) })
	for _, at := range rows.leased {
		c.settler.addAll(rows.lines[at].lease)
	}
}

// unread makes a lease of a message that was claimed without its contents, to be nacked or
// dead-lettered.
func (d *dispatch[T]) unread(row *claimedRow, deadline time.Duration, cause error) *lease {
	c := d.c
	c.count(func(s *ConsumerStats) { s.Claims++; s.Claimed++ })
	l := c.unreadLease(row, deadline, deadline+c.cfg.MaxExtend)
	if row.expired {
		l.setAside(ReasonExpired)
	} else {
		l.state.Store(leaseSettling)
		c.blame(l, cause)
	}
	return l
}

// answers reports whether the database answers: by a look at the slots, and by taking
// them anew where they are in doubt.
func (d *dispatch[T]) answers() error {
	table := slotStatements{d.c.queue, d.c.member.ID, d.runIdle}
	if _, err := table.look(d.c.abandoned, nil); err != nil {
		return err
	}
	_, err := d.tend(d.c.abandoned)
	return err
}
