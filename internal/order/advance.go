package order

import (
	"slices"
	"time"
)

// Only advance decides which message of a key may be delivered. Each change of a message or a key is noted in memory.changed, and
// each call of the owner ends with move.

// move advances all keys that have changed. When a trial alone begins or ends, these are all keys.
func (q *queues) move(now time.Duration) {
	for i := 0; i < len(q.mem.changed); i++ {
		if q.advance(q.mem.changed[i], now); q.stopped != q.trials.alone {
			q.stopped = q.trials.alone
			for _, sl := range q.slots {
				sl.change()
			}
		}
	}
	clear(q.mem.changed)
	q.mem.changed = q.mem.changed[:0]
}

// advance moves the first message of a key to its next state, if the key is open.
func (q *queues) advance(k *keyQueue, now time.Duration) {
	if k.slot.leaving || q.trials.alone {
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
	case k.closed(m) || q.trials.stopped(m):
		q.recall(m)
	case m.state != idle:
	case m.dueAt > now:
		if q.recall(m); m.state == idle {
			q.mem.wait(m, waiting, min(m.dueAt, now+peekEvery<<min(m.pauses, mostPeeks)))
		}
	case q.mem.paused && m.suspect && !q.trials.crashed(m): // the process tries other suspects until the queue is resumed
		if q.recall(m); m.state == idle {
			q.mem.pause(m, waiting, now)
		}
	case !(q.trials.alone && q.trials.m == m) && !k.slot.enter(m): // queued. A trial alone needs no place
	case !q.trials.admit(m, q.busy, now):
		k.slot.leave(m)
		q.mem.pause(m, waiting, now)
	case q.trials.crashed(m):
		q.mem.list(m, ready)
	case m.mustMark:
		q.mem.setContents(m, nil, 0)
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
	q.trials.standBack(m)
}

// clearMarks lists the marks of a key that must not be used for release: its slot is leaving, or a trial alone is being made. It ends
// the other messages of a slot that is leaving.
func (q *queues) clearMarks(k *keyQueue) {
	for _, m := range slices.Clone(k.all) {
		switch leaving := k.slot.leaving; {
		case m.busy():
		case m.mine && (leaving || q.trials.stopped(m)):
			q.mem.list(m, toUndo)
		case leaving:
			q.end(m)
		}
	}
}
