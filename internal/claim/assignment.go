package claim

import (
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The statements of a Reader about slots: package order decides which ones to take and to return.

// tend runs the next statement about slots, if one is due.
func (r *Reader) tend() (Did, error) {
	s, began := r.slots, base.Now()
	if began < s.rest {
		return Did{}, nil
	}
	s.mu.Lock()
	doubts := map[int]bool{}
	for _, sl := range s.seq.Returned() {
		s.reb.Drained(sl.Number)
		doubts[sl.Number] = sl.Doubt
	}
	look, _ := s.reb.Due(began)
	emptied, asked := s.reb.Emptied(), s.reb.Asked()
	s.mu.Unlock()
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
		s.mu.Lock()
		s.rest = base.Now() + slotsPause
		s.mu.Unlock()
	}
	return Did{Statement: true, Looked: look && err == nil}, err
}

func (r *Reader) look(began time.Duration) error {
	s := r.slots
	list, consumers, err := r.table.Slots()
	if err == nil && s.lasts() {
		s.reassign(func(time.Duration) { s.reb.Look(list, consumers, s.seq.Busy, began) })
	}
	return err
}

func (r *Reader) give(list []order.OwnedSlot, doubts map[int]bool) error {
	slots := make([]sqlbatch.OwnedSlot, len(list))
	for i, o := range list {
		slots[i] = sqlbatch.OwnedSlot{Slot: o.Slot, Fence: o.Fence, Doubt: doubts[o.Slot]}
	}
	s := r.slots
	if err := r.table.Give(s.term.ID, slots); err != nil {
		return err
	}
	s.change(func(now time.Duration) { // no message of theirs is to be recalled
		s.reb.Gave(list)
		for _, slot := range s.reb.Changes().Gone {
			s.seq.Drop(slot, now)
		}
	})
	r.cfg.Holder.Freed()
	return nil
}

func (r *Reader) take(list []int) error {
	s := r.slots
	rows, err := r.table.Take(s.term.ID, table.NewSalt(), list)
	if err != nil || !s.lasts() {
		return err
	}
	got, olds := make([]order.OwnedSlot, len(rows)), make(map[int]int64, len(rows))
	for i, row := range rows {
		got[i], olds[row.Slot] = row.OwnedSlot, row.Old
	}
	s.reassign(func(now time.Duration) {
		var taken []order.Slot
		for _, o := range s.reb.Took(list, got) {
			taken = append(taken, order.Slot{Number: o.Slot, Fence: o.Fence, Old: olds[o.Slot], Keys: r.cfg.keys(o.Slot)})
		}
		if len(taken) > 0 {
			s.seq.Take(taken, now)
		}
	})
	return nil
}
