package order

import "time"

// plan returns the next task of messages in memory, or nil.
func (q *queues) plan(b Budget, now time.Duration) *Task {
	given := func(m *Message) bool { return m.given }
	trial := func(m *Message) bool { return q.trials.m == m }
	others := func(m *Message) bool { return !m.suspect && !q.trials.stopped(m) }
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
		{Mark, false, toMark, marking, min(b.Room, b.Items), others},
		{Fetch, false, toFetch, fetching, 1, trial},
		{Fetch, false, toFetch, fetching, min(b.Room, b.Fetch), nil},
		{Look, false, toAsk, asking, b.Items, nil},
		{Look, false, toLook, looking, b.Items, nil},
	} {
		if list := q.mem.take(t.from, t.to, t.n, t.only); len(list) > 0 {
			return q.task(&Task{Kind: t.kind, Suspect: t.suspect, Messages: list})
		}
	}
	return q.held.plan(b.Items, now)
}

// task completes a task of messages, which are under way with it.
func (q *queues) task(t *Task) *Task {
	t.Alone = t.Suspect && q.trials.alone
	seen := map[int]bool{}
	for _, m := range t.Messages {
		m.task, m.mine = t, m.mine || t.Kind == Mark // it might be marked until the answer
		if !seen[m.Slot] {
			seen[m.Slot] = true
			t.Slots = append(t.Slots, m.key.slot.owned())
		}
	}
	return t
}

// answered takes the answer to a task of messages; nil: it is unknown.
func (q *queues) answered(t *Task, a *Answer, now time.Duration) {
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
			q.retry(m, now)
		} else {
			q.learn(m, rows[name{m.ID, m.Seq}], now)
		}
		if len(m.key.all) > 0 && m.key.all[0] != m {
			q.recall(m)
		}
	}
}

// learn takes what is known of the row of a message after a task; nil: it is absent.
func (q *queues) learn(m *Message, row *Row, now time.Duration) {
	was := m.state
	switch {
	case row == nil: // another program ended it, perhaps as a dead letter, or its transaction has committed
		if m.delivery == 0 {
			m.redriven = q.held.redriven
		}
		if was != asking {
			q.held.add(m.key, m.redriven)
			q.held.at = 0
		}
		q.end(m)
	case was == asking && row.Fence == m.Fence && now < m.until && (row.Lock != Unlocked || !m.returned): // its handler may settle it after a rollback
		q.mem.pause(m, inTx, now)
	case was == asking:
		q.mem.list(m, toUndo)
	case row.Written && was == marking:
		m.Fence, m.mustMark, m.crashes, m.pauses = row.Fence, false, row.Crashes, 0
		q.mem.set(m, idle)
	case row.Written:
		q.giveBack(m, row.Fence)
		m.suspect, m.crashes = row.Lapses >= suspectAfter, row.Crashes
		m.mustMark = m.mustMark || m.suspect
	case row.Lock == Locked, was == undoing && row.Fence == m.Fence:
		q.retry(m, now)
	default:
		fence := m.Fence
		q.mem.set(m, idle)
		if m.given {
			q.giveBack(m, row.Fence)
		}
		m.adopt(row, now)
		q.mem.setContents(m, row.Contents, row.Bytes)
		if row.Held {
			q.held.add(m.key, q.held.redriven)
		}
		if was == marking && row.Fence == fence { // it is locked
			q.mem.pause(m, waiting, now)
		}
	}
}

// retry has a message asked about again after an unknown answer.
func (q *queues) retry(m *Message, now time.Duration) {
	switch {
	case m.state == asking:
		q.mem.pause(m, inTx, now)
	case !m.busy():
		q.mem.pause(m, waiting, now)
	case m.key.slot.leaving:
		m.key.slot.doubt = true
		q.end(m)
	default:
		q.mem.pause(m, unsure, now)
	}
}

// giveBack notes that a delivery or a mark ended with a greater stored fence. Its contents are read again, with its row.
func (q *queues) giveBack(m *Message, fence int64) {
	m.Fence, m.mine, m.given, m.suspect = fence, false, false, false
	m.mustMark = m.delivery == 0 && m.Seq <= m.key.slot.Old
	m.pauses = 0
	q.leave(m, idle)
}

// end takes a message out of memory.
func (q *queues) end(m *Message) {
	if q.mem.reading {
		q.mem.ended[name{m.ID, m.Seq}] = max(m.Fence, m.delivery)
	}
	q.leave(m, over)
	m.key.remove(m)
}

// leave ends the part of a message in what is at work.
func (q *queues) leave(m *Message, to state) {
	q.mem.setContents(m, nil, 0)
	q.mem.set(m, to)
	q.trials.end(m)
	m.key.slot.leave(m)
}
