package claim

import (
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The statements of an Ordered about slots: package order decides which slots to take and to return.

// tend runs the next statement about slots, if one is due.
func (r *Ordered) tend() (Did, error) {
	s, began := r.slots, base.Now()
	if began < r.restsUntil {
		return Did{}, nil
	}
	s.mu.Lock()
	look, _ := s.reb.Due(began)
	emptied, asked := s.reb.Emptied(), s.reb.Asked()
	s.mu.Unlock()
	var err error
	switch {
	case look:
		err = r.look(began)
	case len(emptied) > 0:
		err = r.give(emptied)
	case len(asked) > 0:
		err = r.take(asked)
	default:
		return Did{}, nil
	}
	if err != nil {
		r.restsUntil = base.Now() + batch.ShortPause
	}
	return Did{Statement: true, Looked: look && err == nil}, err
}

func (r *Ordered) look(began time.Duration) error {
	s := r.slots
	list, consumers, err := r.table.Slots()
	if err == nil && s.lasts() {
		s.reassign(func(time.Duration) { s.reb.Look(list, consumers, began) })
	}
	return err
}

func (r *Ordered) give(list []sqlbatch.OwnedSlot) error {
	s := r.slots
	if err := r.table.Give(s.term.ID, list); err != nil {
		return err
	}
	s.change(func(now time.Duration) { s.reb.Gave(list, now) })
	s.cfg.Holder.Freed()
	return nil
}

func (r *Ordered) take(list []int) error {
	s := r.slots
	got, err := r.table.Take(s.term.ID, table.NewSalt(), list)
	if err != nil || !s.lasts() {
		return err
	}
	for i := range got {
		got[i].Keys = s.cfg.keys(got[i].Number)
	}
	s.reassign(func(now time.Duration) { s.reb.Took(list, got, now) })
	return nil
}
