package order

import "time"

// planMessages returns the next task of messages in memory, or nil.
func (s *Sequencer) planMessages(b Budget, now time.Duration) *Task {
	given := func(m *Message) bool { return m.given }
	trial := func(m *Message) bool { return s.trial.m == m }
	others := func(m *Message) bool { return !m.suspect && !s.stopped(m) }
	room := min(b.Room, b.Items)
	for _, t := range []struct {
		kind     Kind
		suspect  bool
		from, to state
		n        int
		only     func(*Message) bool
	}{
		{Lapse, false, toUndo, undoing, b.Items, given},
		{Release, false, toUndo, undoing, b.Items, nil},
		{Mark, true, toMark, marking, 1, trial}, // without regard to the room: others might wait for it
		{Mark, false, toMark, marking, room, others},
		{Fetch, false, toFetch, fetching, 1, trial},
		{Fetch, false, toFetch, fetching, min(b.Room, b.Fetch), nil},
		{Look, false, toAsk, asking, b.Items, nil},
		{Look, false, toLook, looking, b.Items, nil},
	} {
		if list := s.take(t.from, t.to, t.n, t.only); len(list) > 0 {
			return (&Task{Kind: t.kind, Suspect: t.suspect, Alone: t.suspect && s.trial.alone, Messages: list}).begins()
		}
	}
	return s.planHeld(b.Items, now)
}

// begins notes the messages that are under way with a task, and their slots.
func (t *Task) begins() *Task {
	seen := map[int]bool{}
	for _, m := range t.Messages {
		m.task, m.mine = t, m.mine || t.Kind == Mark // it might be marked until the answer
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
	for _, m := range t.Messages {
		if m.task != t {
			continue // something else has become of it
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
	case was == asking && row.Fence == m.Fence && now < m.until && (row.Lock != Unlocked || !m.returned): // its handler may settle it after a rollback
		s.pause(m, inTx, now)
	case was == asking:
		s.list(m, toUndo)
	case row.Written && was == marking:
		m.Fence, m.mustMark, m.crashes, m.pauses = row.Fence, false, row.Crashes, 0
		s.set(m, idle)
	case row.Written:
		s.giveBack(m, row.Fence, now)
		m.suspect, m.crashes = row.Lapses >= suspectAfter, row.Crashes
		m.mustMark = m.mustMark || m.suspect
	case row.Lock == Locked, was == undoing && row.Fence == m.Fence:
		s.retry(m, now)
	default:
		fence := m.Fence
		s.set(m, idle)
		if m.given {
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

// rest has a mark released that is not to be used, and ends a message of a leaving slot.
func (s *Sequencer) rest(m *Message, now time.Duration) {
	switch leaving := m.key.slot.leaving; {
	case m.busy() || m.state == over:
	case m.mine && (leaving || s.stopped(m)):
		s.list(m, toUndo)
	case leaving:
		s.end(m, now)
	}
}
