package order

// trials is the handling of suspects. At most one trial is under way.
type trials struct {
	mem     *memory
	most    int // Config.MaxCrashes
	process Process
	m       *Message // whose turn it is; nil: none
	alone   bool     // nothing else is held: a death dead-letters the message
	begun   bool
	line    []*Message // suspects that are queued
}

// crashed reports whether a message has ended too many processes.
func (t *trials) crashed(m *Message) bool { return t.most > 0 && m.crashes >= t.most }

// stopped reports whether a message must wait for the end of a trial that is made alone.
func (t *trials) stopped(m *Message) bool { return t.alone && t.m != m }

// admit reports whether a message may be handled now. A suspect that must wait is queued. A trial that is made alone does not begin
// at once: the marks of other messages are released before.
func (t *trials) admit(m *Message) bool {
	if !m.suspect || t.crashed(m) {
		return true
	}
	last := t.most > 0 && m.crashes == t.most-1
	if t.m == m && t.alone != last && !m.mine {
		t.end(m)
	}
	first := t.m == nil
	if first {
		t.m, t.alone = m, last
	}
	if t.m == m && !t.begun && (!t.alone || !first && t.mem.busy() == 0) {
		t.begun = t.process == nil || t.process.Begin()
	}
	if t.m == m && t.begun {
		return true
	}
	t.mem.set(m, queued)
	t.line = append(t.line, m)
	m.key.slot.leave(m)
	return false
}

// end ends the trial of a message.
func (t *trials) end(m *Message) {
	if t.m != m {
		return
	}
	if t.begun && t.process != nil {
		t.process.End()
	}
	t.m, t.alone, t.begun = nil, false, false
}

// standBack ends the trial of a message that is not handled after all. Its mark is released before.
func (t *trials) standBack(m *Message) {
	if t.m == m && m.mine {
		t.mem.list(m, toUndo)
	} else {
		t.end(m)
	}
}

// again has the suspects that are queued try again, if a trial may begin.
func (t *trials) again() {
	if t.begun {
		return
	}
	line := t.line
	t.line = nil
	for _, m := range line {
		if m.state == queued {
			t.mem.set(m, idle)
		}
	}
}
