package order

import (
	"slices"
	"time"
)

// plan returns the next task of messages in memory, or nil.
func (q *queues) plan(b Budget, now time.Duration) *Task {
	given := func(m *Message) bool { return m.given }
	lapsed, fresh := func(m *Message) bool { return m.Lapses > 0 }, func(m *Message) bool { return m.Lapses == 0 }
	for _, o := range []struct {
		kind Kind
		of   state
		n    int
		only func(*Message) bool
	}{
		{Lapse, toUndo, b.Items, given},
		{Release, toUndo, b.Items, nil},
		{Fetch, toFetch, min(b.Room, b.Fetch), nil},
		{Mark, toMark, min(b.Room, b.Items, max(1, b.Lapsed)), lapsed}, // they might end the process
		// After Fetch: marked messages are fetched first, while there is room
		{Mark, toMark, min(b.Room, b.Items), fresh},
		{Look, inTx, b.Items, nil},
		{Look, toLook, b.Items, nil},
	} {
		if q.mem.paused && (o.of == toMark || o.of == toFetch || o.of == toLook) {
			continue
		}
		t := &Task{Kind: o.kind}
		q.mem.take(o.of, o.n, o.only, func(m *Message) { t.add(m) })
		if len(t.Messages) > 0 {
			return t
		}
	}
	return q.held.plan(b.Items, now)
}

// add adds a message to the task.
func (t *Task) add(m *Message) {
	m.task, m.mine = t, m.mine || t.Kind == Mark // it might be marked until the answer
	t.Messages = append(t.Messages, m)
	if own := m.key.slot.owned(); !slices.Contains(t.Slots, own) {
		t.Slots = append(t.Slots, own)
	}
}

// answered applies the answer to a task of messages; nil means that it is unknown.
func (q *queues) answered(t *Task, a *Answer, now time.Duration) {
	rows := map[name]*Row{}
	if a != nil {
		for i := range a.Rows {
			rows[name{a.Rows[i].ID, a.Rows[i].Seq}] = &a.Rows[i]
		}
	}
	for _, m := range t.Messages {
		if m.task != t {
			continue // its state has changed since
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

// learn applies the row of a message after a task; nil means that it is absent.
func (q *queues) learn(m *Message, row *Row, now time.Duration) {
	was := m.state
	switch {
	case row == nil: // another program ended it, perhaps as a dead letter, or its transaction has committed
		if m.delivery == 0 {
			m.redriven = q.held.redriven
		}
		if was != inTx {
			q.held.add(m.key, m.redriven)
			q.held.at = 0
		}
		q.end(m)
	case was == inTx && row.Fence == m.Fence && now < m.until && (row.Lock != Unlocked || !m.returned):
		// Its handler may settle it after a rollback.
		q.mem.pause(m, inTx, now)
	case was == inTx:
		q.mem.list(m, toUndo)
	case row.Written && was == toMark:
		m.Fence, m.mustMark, m.pauses = row.Fence, false, 0
		q.mem.set(m, idle)
	case row.Written:
		if m.given { // it was a Lapse
			m.Attempts++
		}
		q.released(m, row.Fence)
		q.scatter(m, row.Lapses, now)
		m.mustMark = m.mustMark || m.Lapses > 0
	case row.Lock == Locked && was == toMark:
		q.skipped(m, now)
	case row.Lock == Locked, was == toUndo && row.Fence == m.Fence:
		q.retry(m, now)
	default:
		fence := m.Fence
		q.mem.set(m, idle)
		if m.given {
			q.released(m, row.Fence)
		}
		q.adopt(m, row, now)
		q.mem.setContents(m, row.Contents)
		if row.Held {
			q.held.add(m.key, q.held.redriven)
		}
		if was == toMark && row.Fence == fence {
			q.skipped(m, now)
		}
	}
}

// skipped makes a message whose row was skipped by a Mark be read again until the row is not locked. No other message
// waits for it.
func (q *queues) skipped(m *Message, now time.Duration) {
	m.mine = false
	q.mem.set(m, idle)
	q.recall(m)
	q.mem.pause(m, toLook, now)
}

// retry makes a message be read or written again after an unknown answer.
func (q *queues) retry(m *Message, now time.Duration) {
	switch {
	case m.state == inTx && now >= m.until: // its lease has expired: no handler settles it after a rollback
		q.mem.pause(m, toUndo, now)
	case m.state == inTx, m.state == toLook:
		q.mem.pause(m, m.state, now)
	case !m.busy():
		q.mem.pause(m, waiting, now)
	case m.key.slot.walk == nil:
		m.key.slot.doubt = true
		q.end(m)
	default:
		q.mem.pause(m, toUndo, now)
	}
}

// released notes that a delivery or a mark ended with a greater stored fence. The row and contents will be read again.
func (q *queues) released(m *Message, fence int64) {
	m.Fence, m.mine, m.given = fence, false, false
	m.mustMark = m.delivery == 0 && m.Seq <= m.key.slot.Old
	m.pauses = 0
	q.leave(m, idle)
}

// end removes a message from memory.
func (q *queues) end(m *Message) {
	if q.mem.reading {
		q.mem.ended[name{m.ID, m.Seq}] = max(m.Fence, m.delivery)
	}
	q.leave(m, over)
	m.key.remove(m)
}

// leave removes a message from the messages at work, with its contents.
func (q *queues) leave(m *Message, to state) {
	q.mem.setContents(m, nil)
	q.mem.set(m, to)
	m.key.slot.leave(m)
}
