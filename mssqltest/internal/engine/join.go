package engine

import "github.com/chanq/chanq/mssqltest/internal/lock"

// join orders the parts of a FROM clause, places each condition where its columns are available, chooses the access
// paths, and returns the whole as nested loops. ordered reports whether the rows have the requested order.
func (c *compiler) join(f from, order []orderKey, avail *slotSet) (run iter, ordered bool, err error) {
	own := f.slots()
	bound := ^own
	if avail != nil {
		bound = *avail
	}
	rest := f.conds
	take := func() (now []*cond) {
		var later []*cond
		for _, k := range rest {
			if (k.refs & own).within(bound) {
				now = append(now, k)
			} else {
				later = append(later, k)
			}
		}
		rest = later
		return now
	}
	first := take()
	var steps []iter
	remaining := append([]*rel(nil), f.rels...)
	for len(remaining) > 0 {
		i, err := c.choose(remaining, rest, bound)
		if err != nil {
			return nil, false, err
		}
		r := remaining[i]
		remaining = append(remaining[:i:i], remaining[i+1:]...)
		bound |= r.slots
		before := bound &^ r.slots
		conds := take()
		if r.base == nil {
			step := r.run
			if len(steps) > 0 && r.deps == 0 {
				step = c.spooled(step, r.slots)
			}
			steps = append(steps, filtered(step, conds))
			continue
		}
		var want []orderKey
		if len(steps) == 0 {
			want = order
		}
		a, _, err := c.access(r.base, conds, before, want)
		if err != nil {
			return nil, false, err
		}
		if len(want) > 0 {
			ordered = a.satisfies(want, r.base)
		}
		a.place(conds)
		a.lookup = a.index.at > 0 // until the whole statement is known
		c.paths = append(c.paths, a)
		steps = append(steps, a.iterate)
	}
	return nest(first, steps), ordered, nil
}

// choose picks the next part: first a part that needs no search, then a table that can be searched, then the first one.
func (c *compiler) choose(remaining []*rel, conds []*cond, bound slotSet) (int, error) {
	ready := -1
	best, bestScore := -1, -1
	for i, r := range remaining {
		if !(r.deps).within(bound) {
			continue
		}
		if ready < 0 {
			ready = i
		}
		if c.hints.forceOrder {
			break
		}
		if r.base == nil {
			return i, nil
		}
		var usable []*cond
		for _, k := range conds {
			if k.refs.within(bound | r.slots) {
				usable = append(usable, k)
			}
		}
		a, score, err := c.access(r.base, usable, bound, nil)
		if err != nil || !a.seeks() {
			score = 0
		}
		if score > bestScore {
			best, bestScore = i, score
		}
	}
	if ready < 0 {
		return 0, errUnsupported("a circle of lateral references")
	}
	if c.hints.forceOrder || best < 0 {
		return ready, nil
	}
	return best, nil
}

func filtered(run iter, conds []*cond) iter {
	if len(conds) == 0 {
		return run
	}
	return func(x *exec, yield func() (bool, error)) (bool, error) {
		return run(x, func() (bool, error) {
			ok, err := pass(x, conds)
			if err != nil || !ok {
				return true, err
			}
			return yield()
		})
	}
}

// nest runs the steps inside each other. Conditions that depend on none of them are evaluated first.
func nest(first []*cond, steps []iter) iter {
	return func(x *exec, yield func() (bool, error)) (bool, error) {
		if ok, err := pass(x, first); err != nil || !ok {
			return true, err
		}
		return loop(steps, x, yield)
	}
}

func loop(steps []iter, x *exec, yield func() (bool, error)) (bool, error) {
	if len(steps) == 0 {
		return yield()
	}
	if len(steps) == 1 {
		return steps[0](x, yield)
	}
	return steps[0](x, func() (bool, error) { return loop(steps[1:], x, yield) })
}

// spooled runs a part once and then replays its rows.
func (c *compiler) spooled(run iter, slots slotSet) iter {
	at := c.newSpool()
	var list []int
	for i := range maxSlots {
		if slots.has(i) {
			list = append(list, i)
		}
	}
	return func(x *exec, yield func() (bool, error)) (bool, error) {
		sp := x.spools[at]
		if sp == nil {
			sp = &spool{}
			if _, err := run(x, func() (bool, error) {
				sp.rows = append(sp.rows, x.save(list))
				return true, nil
			}); err != nil {
				return false, err
			}
			x.spools[at] = sp
		}
		for _, row := range sp.rows {
			x.restore(list, row)
			if more, err := yield(); err != nil || !more {
				return more, err
			}
		}
		return true, nil
	}
}

// save copies slots, whose locks are then kept.
func (x *exec) save(list []int) []slot {
	out := make([]slot, len(list))
	for i, at := range list {
		x.slots[at].taken = true
		out[i] = x.slots[at]
	}
	return out
}

func (x *exec) restore(list []int, row []slot) {
	for i, at := range list {
		x.slots[at] = row[i]
	}
}

// discard releases the locks of a saved row that is not needed.
func (x *exec) discard(row []slot, uses []*baseUse) {
	for _, s := range row {
		if len(s.locks) == 0 || s.locks[0].mode == lock.S {
			continue
		}
		for _, u := range uses {
			if r := x.readings[u.at]; u.table == s.locks[0].index.table && !r.keep && !r.ranges {
				x.unlock(s.locks)
				break
			}
		}
	}
}
