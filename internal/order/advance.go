package order

import (
	"slices"
	"time"
)

// Only advance decides which message of a key may be delivered. Each change of a message or a key is noted in
// memory.changed, and each call of the owner ends with move.

// move advances all keys that have changed.
func (q *queues) move(now time.Duration) {
	for i := 0; i < len(q.mem.changed); i++ {
		q.advance(q.mem.changed[i], now)
	}
	clear(q.mem.changed)
	q.mem.changed = q.mem.changed[:0]
}

// advance moves the first message of a key to its next state, if the key is open.
func (q *queues) advance(k *keyQueue, now time.Duration) {
	if k.slot.walk == nil {
		q.clearMarks(k)
	}
	if len(k.all) == 0 {
		if !k.held && k.spill == None {
			q.forget(k)
		}
		return
	}
	m := k.all[0]
	switch {
	case m.busy():
	case k.closed(m):
		q.recall(m)
	case m.state != idle:
	case m.dueAt > now:
		if q.recall(m); m.state == idle {
			q.mem.wait(m, waiting, min(m.dueAt, now+lookEvery<<min(m.pauses, mostPeeks)))
		}
	case !k.slot.enter(m): // queued
	case q.crashed(m):
		q.mem.list(m, ready)
	case m.mustMark:
		q.mem.setContents(m, nil)
		q.mem.list(m, toMark)
	case m.contents == nil:
		q.mem.list(m, toFetch)
	default:
		m.pauses = 0
		q.mem.list(m, ready)
	}
}

// recall makes a message idle that is not the first message of an open key any more, or is not due.
func (q *queues) recall(m *Message) {
	if m.busy() || m.state == over {
		return
	}
	if m.state != idle {
		q.mem.set(m, idle)
	}
	m.key.slot.leave(m)
}

// crashed reports whether a message has ended too many processes.
func (q *queues) crashed(m *Message) bool { return m.Lapses >= q.mem.cfg.MaxCrashes }

// clearMarks lists the marks of a key whose slot is leaving, and ends its other messages.
func (q *queues) clearMarks(k *keyQueue) {
	for _, m := range slices.Clone(k.all) {
		switch {
		case m.busy():
		case m.mine:
			q.mem.list(m, toUndo)
		default:
			q.end(m)
		}
	}
}
