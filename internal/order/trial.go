package order

import (
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// trials handles suspects. At most one trial runs at a time.
type trials struct {
	mem     *memory
	most    int // Config.MaxCrashes
	process Process
	quiet   func(time.Duration) bool // Config.Quiet
	m       *Message                 // the message on trial; nil: none
	alone   bool                     // no other message is or will be held: a death dead-letters this one
	held    time.Duration            // the last time when another message was held, or the trial had not begun
}

// crashed reports whether a message has ended too many processes.
func (t *trials) crashed(m *Message) bool { return t.most > 0 && m.crashes >= t.most }

// stopped reports whether a message must wait for the end of a trial alone.
func (t *trials) stopped(m *Message) bool { return t.alone && t.m != m }

// admit reports whether a message may be handled now. A suspect that must wait tries again. A trial alone does not begin immediately: the
// marks of other messages are released before, and handlers that have settled their messages may return. busy returns how many messages
// are held.
func (t *trials) admit(m *Message, busy func() int, now time.Duration) bool {
	if !m.suspect || t.crashed(m) {
		return true
	}
	last := t.most > 0 && m.crashes == t.most-1
	if t.m == m && t.alone != last && !m.mine {
		t.end(m)
	}
	if t.m == nil && (t.process == nil || t.process.Begin()) {
		if t.m, t.alone, t.held = m, last, now; last {
			return false
		}
	}
	switch {
	case t.m != m:
		return false
	case !t.alone:
		return true
	case busy() > 0:
		t.held = now
		return false
	}
	return t.quiet == nil || t.quiet(now-t.held)
}

// mark returns how the message on trial is marked.
func (t *trials) mark() sqlbatch.Alone {
	if t.alone {
		return sqlbatch.OnlyMessage
	}
	return sqlbatch.OnlySuspect
}

// end ends the trial of a message, and the wait of one other suspect.
func (t *trials) end(m *Message) {
	if t.m != m {
		return
	}
	if t.process != nil {
		t.process.End()
	}
	t.m, t.alone = nil, false
	for _, next := range t.mem.timers {
		if m := next.m; m.suspect && m.state == waiting && m.wakeAt == next.at {
			t.mem.set(m, idle)
			return
		}
	}
}

// hold makes a trial end that cannot go on because the queue is paused: see advance.
func (t *trials) hold() {
	if m := t.m; t.mem.paused && m != nil && m.task == nil && (m.state == toMark || m.state == toFetch) {
		t.mem.set(m, idle)
	}
}

// standBack ends the trial of a message that is not handled after all, after its mark is released.
func (t *trials) standBack(m *Message) {
	if t.m == m && m.mine {
		t.mem.list(m, toUndo)
	} else {
		t.end(m)
	}
}
