package order

import "github.com/chanq/chanq/sqlbatch"

// trials is the handling of suspects. At most one trial is under way.
type trials struct {
	mem     *memory
	most    int // Config.MaxCrashes
	process Process
	m       *Message // has the turn of the process; nil: none
	last    bool     // a counted death dead-letters the message
	alone   bool     // nothing else of this consumer is or will be held
	cleared bool     // nor of the other consumers of the process, or they were waited for in vain
	spared  bool     // in vain: a death does not count
}

// Spared reports whether a last trial does not count beside messages of other consumers, by the number of leases of the message that have
// expired: some such trials are made before one that does.
func Spared(lapses, maxCrashes int) bool { return lapses <= 2*maxCrashes }

// crashed reports whether a message has ended too many processes.
func (t *trials) crashed(m *Message) bool { return t.most > 0 && m.crashes >= t.most }

// stopped reports whether a message must wait for the end of a trial that is made alone.
func (t *trials) stopped(m *Message) bool { return t.alone && t.m != m }

// admit reports whether a message may be handled now. A suspect that must wait asks again. A trial that is made alone does not begin at
// once: the marks of other messages are released before. busy returns how many messages are held.
func (t *trials) admit(m *Message, busy func() int) bool {
	if !m.suspect || t.crashed(m) {
		return true
	}
	last := t.most > 0 && m.crashes == t.most-1
	if t.m == m && t.last != last && !m.mine {
		t.end(m)
	}
	if t.m == nil && (t.process == nil || t.process.Begin()) {
		if t.m, t.last, t.alone = m, last, last; last {
			return false
		}
	}
	switch {
	case t.m != m || t.alone && busy() > 0:
		return false
	case !t.alone || t.cleared || t.process == nil:
		return true
	}
	clear, late := t.process.Clear()
	if t.cleared = clear || late; late && Spared(m.lapses, t.most) {
		t.alone, t.spared = false, true
	}
	return t.cleared
}

// mark returns how the message on trial is to be marked.
func (t *trials) mark() sqlbatch.Alone {
	switch {
	case t.spared:
		return sqlbatch.Beside
	case t.alone:
		return sqlbatch.OnlyMessage
	}
	return sqlbatch.OnlySuspect
}

// end ends the trial of a message.
func (t *trials) end(m *Message) {
	if t.m != m {
		return
	}
	if t.process != nil {
		t.process.End()
	}
	t.m, t.last, t.alone, t.cleared, t.spared = nil, false, false, false, false
}

// standBack ends the trial of a message that is not handled after all. Its mark is released before.
func (t *trials) standBack(m *Message) {
	if t.m == m && m.mine {
		t.mem.list(m, toUndo)
	} else {
		t.end(m)
	}
}
