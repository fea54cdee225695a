package chanqweb

import (
	"cmp"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// slotsData is the data of the page of slots.
type slotsData struct {
	Slots []chanqadmin.SlotStats
	Limit int
	Free  int // without an owner
	Keys  []*keyLine
	More  int  // keys that are not shown
	All   bool // all messages were read
}

// keyLine is a key whose next message cannot be delivered now.
type keyLine struct {
	Key       string
	Slot      int
	Why       string    // the state of the message that it waits for: leased, scheduled or dead
	ID        chanq.ID  // of that message
	Until     time.Time // when the lease of that message ends, or it is due
	Attempts  int
	LastError string
	Messages  int // of the key, among those that were read
}

const (
	keysShown  = 50
	keysLooked = 1000 // messages of each state that are read to find them
)

func (h *Handler) slots(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	q, kind, err := h.open(v)
	if err != nil {
		return nil, err
	}
	if kind != chanq.KindOrdered {
		return nil, errNoPage
	}
	list, err := q.Slots(v.ctx)
	if err != nil {
		return nil, err
	}
	data := slotsData{Slots: list, Limit: chanqadmin.SlotStatsLimit}
	for i := range list {
		e := chanqadmin.Entry{Key: list[i].TopKey, Slot: list[i].Slot}
		h.conceal(v, name, &e)
		list[i].TopKey = printable(e.Key)
		if list[i].Owner == "" {
			data.Free++
		}
	}
	if data.Keys, data.All, err = h.closedKeys(v, q); err != nil {
		return nil, err
	}
	if len(data.Keys) > keysShown {
		data.More, data.Keys = len(data.Keys)-keysShown, data.Keys[:keysShown]
	}
	return &answer{view: &view{Page: "slots", Tab: "slots", Name: "Slots of " + name, Queue: name, Kind: kind, Data: data}}, nil
}

// closedKeys returns the keys of an ordered queue that wait for a message that is leased, waits for its next attempt or, with
// DeadKeyHolds, is dead. Keys with the most messages are first. all means that every message was read.
func (h *Handler) closedKeys(v *visit, q *chanqadmin.Queue) (list []*keyLine, all bool, err error) {
	closed := map[string]*keyLine{}
	states := []chanqadmin.State{chanqadmin.StateLeased, chanqadmin.StateScheduled, chanqadmin.StateReady}
	if h.store.known(q.Name()).Holds {
		states = slices.Insert(states, 0, chanqadmin.StateDead)
	}
	all = true
	for _, state := range states {
		page, err := q.List(v.ctx, chanqadmin.Select{State: state}, chanqadmin.List{Limit: keysLooked})
		if err != nil {
			return nil, false, err
		}
		all = all && page.Next == ""
		for _, e := range page.Entries {
			if e.Key == "" {
				continue // it waits for no other message
			}
			key := e.Key // conceal may change it
			k := closed[key]
			if k == nil && state == chanqadmin.StateReady {
				continue
			}
			if k == nil {
				h.conceal(v, q.Name(), &e)
				k = &keyLine{Key: e.Key, Slot: e.Slot, Why: string(e.State), ID: e.ID, Until: whenOf(e), Attempts: e.Attempts, LastError: e.LastError}
				closed[key], list = k, append(list, k)
			}
			if state != chanqadmin.StateDead {
				k.Messages++
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *keyLine) int { return cmp.Compare(b.Messages, a.Messages) })
	return list, all, nil
}
