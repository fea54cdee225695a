package chanq

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// TryLease on an ordered queue: as a guest, a member that has slots for as long as its
// leases last. It takes its share of those that are free, claims from them from the
// beginning, keeps the first message of each key, and gives back the others, and the slots
// that it has taken for nothing. What it holds from calls before closes its keys, like
// anybody's.

// guestRows is how many rows a call claims at least, if it may find fewer keys among them.
const guestRows = 100

// tryLeaseOrdered is TryLease on an ordered queue.
func tryLeaseOrdered[T any](ctx context.Context, core *queue, n int, d time.Duration, config ConsumerConfig) (leases []*Lease[T], err error) {
	select { // one call at a time: each takes the slots of the one before under new fences
	case core.guest.turn <- struct{}{}:
		defer func() { <-core.guest.turn }()
	case <-ctx.Done():
		return nil, core.fail("try lease", context.Cause(ctx))
	}
	owner := &loneOwner{queue: core, timeout: config.StatementTimeout, values: context.WithoutCancel(ctx)}
	g := &guestClaim[T]{queue: core, owner: owner, d: d}
	defer func() { g.leave(ctx) }()
	for _, rows := range []int{max(guestRows, 4*n), math.MaxInt} {
		if err := core.visitNow(ctx, config.Name, d); err != nil {
			return leases, core.fail("try lease", err)
		}
		more, again, err := g.claim(ctx, n-len(leases), min(rows, core.dialect.Traits().ClaimRows))
		leases = append(leases, more...)
		if err != nil && len(leases) == 0 {
			return nil, core.fail("try lease", err)
		}
		if err != nil || !again || len(leases) == n {
			break
		}
	}
	return leases, nil
}

// visitNow notes the guest among the members, for at least as long as a lease of d that
// begins now.
func (q *queue) visitNow(ctx context.Context, name string, d time.Duration) error {
	now := monotonic()
	long, known := q.guest.stay(now, d)
	if known {
		return nil
	}
	m := newMember(name, long)
	m.ID = q.guest.id
	if err := q.once(ctx, q.sql.Join(m), nil); err != nil {
		return err
	}
	q.guest.mu.Lock()
	q.guest.noted = max(q.guest.noted, deadlineAfter(now, long))
	q.guest.mu.Unlock()
	return nil
}

// bound is when the guest's membership ends.
func (g *guest) bound() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.noted
}

// guestClaim is one call of TryLease.
type guestClaim[T any] struct {
	queue *queue
	owner *loneOwner
	d     time.Duration
	slots []ownSlot // taken
	kept  []int     // slots of which something is kept, or may be from calls before
	// suspect: one is kept. Others are given back.
	suspect bool
}

// claim claims so many rows, and returns up to n leases of them. again says that there may be more
// behind these rows.
func (g *guestClaim[T]) claim(ctx context.Context, n, most int) (leases []*Lease[T], again bool, err error) {
	if err := g.take(ctx); err != nil || len(g.slots) == 0 {
		return nil, false, err
	}
	ls := newLines(g.queue.lineConfig(most*len(g.slots), g.d))
	start, bound := monotonic(), g.queue.guest.bound()
	for _, own := range g.slots {
		if most, room := g.keysLeft(own.slot, start); room {
			ls.open(own.slot, own.fence, most, start)
		}
	}
	ls.rotate = g.slots[rand.N(len(g.slots))].slot
	plan := ls.plan(start, 0, time.Second, false)
	if len(plan.parts) == 0 {
		return nil, false, nil
	}
	plan.mine = true // of calls before
	var rows orderedRows
	g.queue.guest.salt = nextSalt(g.queue.guest.salt)
	err = g.queue.once(ctx, g.queue.sql.ClaimSlots(sqlbatch.SlotClaim{
		Rows: most, Lease: g.d, Member: g.queue.guest.id, Salt: g.queue.guest.salt, Suspects: true, Parts: plan.parts, Mine: plan.mine,
	}), rows.scan)
	if err != nil {
		return nil, false, err
	}
	var back []*lease
	for i, l := range buildLeases[T](g.queue, rows.rows, g.owner, min(deadlineAfter(start, g.d), bound), start) {
		at := &rows.lines[rows.leased[i]]
		at.lease, at.message = l.lease, l
		if l.lease.state.Load() == leaseSettling {
			back = append(back, l.lease)
		}
	}
	ls.claimed(plan, rows.lines, rows.ends, monotonic())
	for _, e := range rows.ends {
		if s := ls.slot(e.slot); s != nil && e.seq == slotEnd && len(s.entries) == 0 { // of calls before there is nothing left
			g.kept = slices.DeleteFunc(g.kept, func(slot int) bool { return slot == e.slot })
		}
	}
	if err = g.queue.askHeld(ctx, ls, g.once); err == nil {
		leases, back = g.choose(ls, n, back)
	}
	ls.stop()
	rest, _ := ls.collect()
	for _, l := range rest {
		if l.takeBack() {
			back = append(back, l)
		}
	}
	if len(back) > 0 {
		g.owner.giveBack(ctx, back) // if this fails, they come again when their leases have ended
	}
	return leases, len(rows.lines) == most, err
}

// keysLeft is how many keys of a slot this call may hand out, 0 for any number, as long as there
// is room: the leases of calls before count until they have ended.
func (g *guestClaim[T]) keysLeft(slot int, now time.Duration) (most int, room bool) {
	out := g.queue.guest.out
	out[slot] = slices.DeleteFunc(out[slot], func(l *lease) bool {
		switch l.state.Load() {
		case leaseHeld, leaseInTx, leaseSettling:
			return now >= l.deadlineAt()
		}
		return true
	})
	if most = g.queue.cfg.keysOf(slot); most == 0 {
		return 0, true
	}
	return most - len(out[slot]), most > len(out[slot])
}

// choose takes up to n leases whose turn it is; of suspects one.
func (g *guestClaim[T]) choose(ls *lines, n int, back []*lease) (leases []*Lease[T], _ []*lease) {
	for len(leases) < n {
		l, message := ls.next()
		if l == nil {
			break
		}
		if l.suspect && g.suspect {
			l.takeBack()
			back = append(back, l)
			continue
		}
		g.suspect = g.suspect || l.suspect
		slot := l.spot.line.slot.number
		g.kept = append(g.kept, slot)
		if g.queue.cfg.MaxKeys > 0 {
			g.queue.guest.out[slot] = append(g.queue.guest.out[slot], l)
		}
		leases = append(leases, message.(*Lease[T]))
	}
	return leases, back
}

// take takes the guest's share of the slots that it can have, those that it has already
// under new fences.
func (g *guestClaim[T]) take(ctx context.Context) error {
	table := slotStatements{g.queue, g.queue.guest.id, g.once}
	look, err := table.look(ctx, nil)
	if err != nil {
		return err
	}
	var mine, free []ownSlot
	for _, row := range look.rows {
		switch own := (ownSlot{row.slot, row.fence}); {
		case row.owner == g.queue.guest.id:
			mine = append(mine, own)
		case row.owner == [16]byte{} || row.gone:
			free = append(free, own)
		}
	}
	share := (len(look.rows) + max(1, look.members) - 1) / max(1, look.members)
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	if g.slots == nil { // the first claim of this call
		for _, own := range mine {
			g.kept = append(g.kept, own.slot)
		}
	}
	mine = append(mine, free[:min(len(free), max(0, share-len(mine)))]...)
	if len(mine) == 0 {
		return nil
	}
	g.slots, err = table.take(ctx, mine)
	return err
}

// leave gives the slots back of which nothing is kept. What fails is of no matter: they are
// free when the guest's time is over.
func (g *guestClaim[T]) leave(ctx context.Context) {
	rest := slices.DeleteFunc(g.slots, func(own ownSlot) bool { return slices.Contains(g.kept, own.slot) })
	if len(rest) == 0 {
		return
	}
	longer, end := session.Outlasting(ctx, tryPatience)
	defer end()
	ctx, cancel := context.WithTimeout(longer, min(g.d/10, leaveTimeout))
	defer cancel()
	_ = slotStatements{g.queue, g.queue.guest.id, g.once}.give(ctx, rest)
}

func (g *guestClaim[T]) once(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	return g.queue.once(ctx, st, scan)
}

// askHeld asks which lines the dead hold, of the slots for which that must be known.
func (q *queue) askHeld(ctx context.Context, ls *lines, run func(context.Context, sqlbatch.Statement, func(*sql.Rows) error) error) error {
	slots := ls.asking(false)
	if len(slots) == 0 {
		return nil
	}
	held, err := q.held(ctx, slots, run)
	if err != nil {
		return fmt.Errorf("held keys: %w", err)
	}
	for _, slot := range slots {
		if len(held[slot]) < heldMost {
			ls.allow(slot, held[slot], monotonic())
		}
	}
	return nil
}

// held are the lines of slots that the dead hold.
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
