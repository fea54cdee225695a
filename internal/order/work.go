package order

import "time"

// planMessages returns the next task of messages in memory, or nil.
func (s *Sequencer) planMessages(b Budget, now time.Duration) *Task {
	trial := func(m *Message) bool { return s.trial.m == m }
	others := func(m *Message) bool { return !m.suspect && !s.stopped(m) }
	room := min(b.Room, b.Items)
	t := &Task{Messages: s.take(toRelease, releasing, b.Items, nil)}
	if t.Kind = Release; len(t.Messages) > 0 {
		return t
	}
	if t.Kind, t.Messages = Lapse, s.take(toLapse, lapsing, b.Items, nil); len(t.Messages) > 0 {
		return t
	}
	t.Kind, t.Messages, t.Suspect = Mark, s.take(toMark, marking, 1, trial), true
	if len(t.Messages) == 0 {
		t.Messages, t.Suspect = s.take(toMark, marking, room, others), false
	}
	if len(t.Messages) > 0 {
		for _, m := range t.Messages {
			m.mine = true // until the answer
		}
		return t
	}
	t.Kind, t.Messages = Fetch, s.take(toFetch, fetching, 1, trial)
	if len(t.Messages) == 0 {
		t.Messages = s.take(toFetch, fetching, min(b.Room, b.Fetch), nil)
	}
	if len(t.Messages) > 0 {
		return s.ofSlots(t)
	}
	t.Kind, t.Messages = Look, append(s.take(toAsk, asking, b.Items, nil), s.take(toLook, looking, b.Items, nil)...)
	if len(t.Messages) > 0 {
		return s.ofSlots(t)
	}
	return s.planHeld(b.Items, now)
}

// ofSlots notes the slots of the messages of a task.
func (s *Sequencer) ofSlots(t *Task) *Task {
	seen := map[int]bool{}
	for _, m := range t.Messages {
		if !seen[m.Slot] {
			seen[m.Slot] = true
			t.Slots = append(t.Slots, m.key.slot.Slot)
		}
	}
	return t
}

// answered takes the answer to a task of messages; nil: it is unknown.
func (s *Sequencer) answered(t *Task, a *Answer, now time.Duration) {
	rows := map[name]*Row{}
	if a != nil {
		for i := range a.Rows {
			rows[name{a.Rows[i].ID, a.Rows[i].Seq}] = &a.Rows[i]
		}
	}
	underWay := map[Kind][2]state{Look: {looking, asking}, Fetch: {fetching, fetching}, Mark: {marking, marking}, Lapse: {lapsing, lapsing}, Release: {releasing, releasing}}[t.Kind]
	for _, m := range t.Messages {
		if m.state != underWay[0] && m.state != underWay[1] {
			continue
		}
		if a == nil || !a.Walked {
			s.retry(m, now)
		} else {
			s.learn(m, rows[name{m.ID, m.Seq}], a.Redriven, now)
		}
		s.advance(m.key, now)
		if m.state == idle {
			s.recall(m, now)
		}
		s.rest(m, now)
	}
}

// learn takes what is known of the row of a message after a task; nil: it is absent.
func (s *Sequencer) learn(m *Message, row *Row, redriven int64, now time.Duration) {
	was := m.state
	switch {
	case row == nil: // another program ended it, perhaps as a dead letter, or its transaction has committed
		if m.delivery > 0 {
			redriven = m.redriven
		}
		if was != asking {
			s.hold(m.key, redriven, now)
			s.heldAt = 0
		}
		s.end(m, now)
	case was == asking && row.Fence == m.Fence && row.Lock != Unlocked && now < m.until:
		s.pause(m, inTx, now)
	case was == asking:
		s.undo(m)
	case row.Written && was == marking:
		m.Fence, m.mustMark, m.crashes, m.pauses = row.Fence, false, row.Crashes, 0
		s.set(m, idle)
	case row.Written:
		s.giveBack(m, row.Fence, now)
		m.suspect, m.crashes = row.Lapses >= suspectAfter, row.Crashes
		m.mustMark = m.mustMark || m.suspect
	case row.Lock == Locked, (was == lapsing || was == releasing) && row.Fence == m.Fence:
		s.retry(m, now)
	default:
		fence := m.Fence
		s.set(m, idle)
		if was == lapsing {
			s.giveBack(m, row.Fence, now)
		}
		s.adopt(m, row, now)
		if row.Held {
			s.hold(m.key, redriven, now)
		}
		if was == marking && row.Fence == fence { // it is locked
			s.pause(m, waiting, now)
		}
	}
}

// retry has a message asked about again after an unknown answer.
func (s *Sequencer) retry(m *Message, now time.Duration) {
	switch {
	case m.state == asking:
		s.pause(m, inTx, now)
	case !m.busy():
		s.pause(m, waiting, now)
	case m.key.slot.leaving:
		m.key.slot.doubt = true
		s.end(m, now)
	default:
		s.pause(m, unsure, now)
	}
}

// undo ends a delivery or a mark with an unknown outcome.
func (s *Sequencer) undo(m *Message) {
	if m.given {
		s.list(m, toLapse)
	} else {
		s.list(m, toRelease)
	}
}

// rest has a mark released that is not to be used, and ends a message of a leaving slot.
func (s *Sequencer) rest(m *Message, now time.Duration) {
	switch leaving := m.key.slot.leaving; {
	case m.busy() || m.state == over:
	case m.mine && (leaving || s.stopped(m)):
		s.list(m, toRelease)
	case leaving:
		s.end(m, now)
	}
}
