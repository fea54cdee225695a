package order

import "time"

// held has the keys that are closed because a dead message holds them, or might.
type held struct {
	mem      *memory
	on       bool  // dead messages hold their keys
	redriven int64 // the queue's counter of redrives; negative: unknown
	keys     map[*keyQueue]bool
	at       time.Duration // of the next check
}

// add closes a key until it is known that no dead message holds it.
func (h *held) add(k *keyQueue, redriven int64) {
	if h.on && k.name.keyed && !k.held {
		k.held, k.note = true, redriven
		h.keys[k] = true
		h.mem.change(k)
	}
}

// plan returns the check of up to n keys, or nil.
func (h *held) plan(n int, now time.Duration) *Task {
	if len(h.keys) == 0 || now < h.at {
		return nil
	}
	h.at = now + heldEvery
	t := &Task{Kind: Held}
	for k := range h.keys {
		if k.busy() == 0 && !k.slot.leaving && len(t.of) < n {
			t.of = append(t.of, k)
			t.Keys, t.KeySlots = append(t.Keys, k.name.key), append(t.KeySlots, k.slot.Number)
		}
	}
	if len(t.of) == 0 {
		return nil
	}
	return t
}

// answer applies the answer to a check. A key opens if no redrive is later than its note, and no catch-up is pending. After a later
// redrive, answer reports that a catch-up is needed. A key without known messages is left to later reads, which report if it is held.
func (h *held) answer(t *Task, a *Answer) (redriven bool) {
	for i, k := range t.of {
		if !k.held || k.busy() > 0 || k.slot.leaving {
			continue
		}
		switch still := a.Held[i]; {
		case still && (len(k.all) > 0 || k.spill < None || a.Redriven != k.note || h.mem.reading):
		case a.Redriven != k.note:
			k.note, redriven = a.Redriven, true
		case still || !k.slot.walk.pending():
			k.held = false
			delete(h.keys, k)
			h.mem.change(k)
		}
	}
	return redriven
}
