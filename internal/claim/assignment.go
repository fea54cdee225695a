package claim

import (
	"math"
	"time"

	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// The slots of a Reader: package order decides which ones to take and to return.

// tend runs the next statement about slots, if one is due.
func (r *Reader) tend() (Did, error) {
	began := r.cfg.Now()
	if began < r.rest {
		return Did{}, nil
	}
	r.mu.Lock()
	doubts := map[int]bool{}
	for _, s := range r.seq.Returned() {
		r.reb.Drained(s.Number)
		doubts[s.Number] = s.Doubt
	}
	look, _ := r.reb.Due(began)
	emptied, asked := r.reb.Emptied(), r.reb.Asked()
	r.mu.Unlock()
	var err error
	switch {
	case look:
		err = r.look(began)
	case len(emptied) > 0:
		err = r.give(emptied, doubts)
	case len(asked) > 0:
		err = r.take(asked)
	default:
		return Did{}, nil
	}
	if err != nil {
		r.rest = r.cfg.Now() + slotsPause
	}
	return Did{Statement: true, Looked: look && err == nil}, err
}

// holds reports whether the membership lasts in which a statement was sent.
func (r *Reader) holds() bool {
	term, _, lasts := r.cfg.Membership.Current()
	return lasts && term == r.term
}

func (r *Reader) look(began time.Duration) error {
	list, consumers, err := r.cfg.Table.Slots()
	if err != nil || !r.holds() {
		return err
	}
	recall := false
	r.change(func(now time.Duration) {
		r.reb.Look(list, consumers, r.seq.Busy, began)
		recall = r.apply(now)
	})
	if recall {
		r.cfg.Recalled()
	}
	return nil
}

// apply drops and returns slots as the Rebalancer says, and reports whether there are some.
func (r *Reader) apply(now time.Duration) bool {
	c := r.reb.Changes()
	for _, slot := range c.Gone {
		r.seq.Drop(slot, now)
	}
	for _, slot := range c.Leaving {
		r.seq.Return(slot, now)
	}
	return len(c.Gone)+len(c.Leaving) > 0
}

func (r *Reader) give(list []order.OwnedSlot, doubts map[int]bool) error {
	slots := make([]sqlbatch.OwnedSlot, len(list))
	for i, o := range list {
		slots[i] = sqlbatch.OwnedSlot{Slot: o.Slot, Fence: o.Fence, Doubt: doubts[o.Slot]}
	}
	if err := r.cfg.Table.Give(r.term.ID, slots); err != nil {
		return err
	}
	r.change(func(now time.Duration) {
		r.reb.Gave(list)
		for _, o := range list {
			r.seq.Drop(o.Slot, now)
		}
		r.apply(now)
	})
	r.cfg.Freed()
	return nil
}

func (r *Reader) take(list []int) error {
	rows, err := r.cfg.Table.Take(r.term.ID, r.cfg.Salt(), list)
	if err != nil || !r.holds() {
		return err
	}
	got, olds := make([]order.OwnedSlot, len(rows)), make(map[int]int64, len(rows))
	for i, row := range rows {
		got[i], olds[row.Slot] = row.OwnedSlot, row.Old
	}
	recall := false
	r.change(func(now time.Duration) {
		var taken []order.Slot
		for _, o := range r.reb.Took(list, got) {
			taken = append(taken, order.Slot{Number: o.Slot, Fence: o.Fence, Old: olds[o.Slot], Keys: r.cfg.Keys(o.Slot)})
		}
		recall = r.apply(now)
		if len(taken) > 0 {
			r.seq.Take(taken, now)
		}
	})
	if recall {
		r.cfg.Recalled()
	}
	return nil
}

// End has all slots returned, by further Steps, and no more taken.
func (r *Reader) End() {
	recall := false
	r.change(func(now time.Duration) {
		r.reb.End()
		recall = r.apply(now)
	})
	if recall {
		r.cfg.Recalled()
	}
}

// Empty reports whether no slot is owned.
func (r *Reader) Empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reb.Empty()
}

// Owned returns the slots that are read, in ascending order. It is not nil.
func (r *Reader) Owned() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	owned := r.reb.Owned()
	slots := make([]int, len(owned))
	for i, o := range owned {
		slots[i] = o.Slot
	}
	return slots
}

// Calm notes whether the caller calls Hurry when a consumer joins or returns slots.
func (r *Reader) Calm(calm bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reb.Calm(calm)
}

// Hurry brings the next look at the slots forward.
func (r *Reader) Hurry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reb.Hurry()
}

// Due returns when Step might have something to do for the budget; the greatest Duration while the membership does not last.
func (r *Reader) Due(b order.Budget) time.Duration {
	if !r.holds() {
		return math.MaxInt64
	}
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	look, wait := r.reb.Due(now)
	slots := now + wait
	if look || wait > math.MaxInt64-now {
		slots = now
	}
	if wait > math.MaxInt64-now {
		slots = math.MaxInt64
	}
	if len(r.seq.Returned()) > 0 {
		slots = now
	}
	return min(max(slots, r.rest), r.seq.Due(b, now))
}
