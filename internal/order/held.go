package order

import "time"

// held has the keys that are closed because a dead message holds them, or might.
type held struct {
	mem      *memory
	redriven int64 // the queue's counter of redrives; negative: unknown
	keys     map[*keyQueue]bool
	at       time.Duration // of the next check
}

// add closes a key until it is known that no dead message holds it.
func (h *held) add(k *keyQueue, redriven int64) {
	if h.mem.cfg.Holds && k.name.keyed && !k.held {
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
	h.at = now + lookEvery
	t := &Task{Kind: Held}
	for k := range h.keys {
		if k.busy() == 0 && k.slot.walk != nil && len(t.of) < n {
			t.of, t.Keys = append(t.of, k), append(t.Keys, k.name.key)
		}
	}
	if len(t.of) == 0 {
		return nil
	}
	return t
}

// opens returns the keys that no dead message holds any more. Keys without known messages are left to later reads,
// which report if they are held.
func (h *held) opens(t *Task, a *Answer) (keys []*keyQueue) {
	for i, k := range t.of {
		known := len(k.all) > 0 || k.spill < None
		switch still := a.Held[i]; {
		case !k.held || k.busy() > 0 || k.slot.walk == nil:
		case !still:
			keys = append(keys, k)
		case !known && a.Redriven == k.note && !h.mem.reading:
			h.open(k)
		}
	}
	return keys
}

// open opens a key. Its messages wait for the pending catch-ups: one of them might bring the message that was redriven.
func (h *held) open(k *keyQueue) {
	k.held = false
	delete(h.keys, k)
	for _, m := range k.all {
		m.gate = h.mem.events
	}
	h.mem.change(k)
}
