package model

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/chanq/chanq"
)

// queueModel is what a queue must be like: maps, and the life of a message as
// docs/guarantees.md tells it. Times are Unix milliseconds of the database's
// clock. Those that a step sets are known only to be no earlier than the
// step's beginning, until the database has been read (see settleTime).
type queueModel struct {
	live, dead map[chanq.ID]*message
	done       []*message
	paused     bool
	now        int64 // at the beginning of the step

	maxAttempts int
	retain      bool
	keepsCopies bool // a message that is done again leaves a second row
}

type message struct {
	id       chanq.ID
	body     string
	priority chanq.Priority
	key      string
	fence    int
	attempts int
	enqueued moment
	at       moment // due, end of the lease, or end of its life
	leasedBy string
	err      string // a trailing … stands for anything
}

// moment is a time that is exact once the database has been read.
type moment struct {
	ms    int64
	exact bool
}

func newModel(maxAttempts int, retain, keepsCopies bool) *queueModel {
	return &queueModel{
		live: map[chanq.ID]*message{}, dead: map[chanq.ID]*message{},
		maxAttempts: maxAttempts, retain: retain, keepsCopies: keepsCopies,
	}
}

// clone is for transactions, which may be rolled back.
func (q *queueModel) clone() *queueModel {
	c := *q
	for _, table := range []*map[chanq.ID]*message{&c.live, &c.dead} {
		*table = maps.Clone(*table)
		for id, m := range *table {
			copied := *m
			(*table)[id] = &copied
		}
	}
	c.done = slices.Clone(c.done)
	for i, m := range c.done {
		copied := *m
		c.done[i] = &copied
	}
	return &c
}

// after is the time d from now, rounded up to milliseconds.
func (q *queueModel) after(d time.Duration) moment {
	return moment{ms: q.now + int64((d+time.Millisecond-1)/time.Millisecond)}
}

func (q *queueModel) send(m chanq.Message[string]) chanq.Receipt {
	if q.live[m.ID] != nil {
		return chanq.Receipt{ID: m.ID}
	}
	if holder := q.holder(m.DedupKey); holder != nil {
		return chanq.Receipt{ID: holder.id, Duplicate: true}
	}
	q.live[m.ID] = &message{
		id: m.ID, body: m.Body, priority: m.Priority, key: m.DedupKey,
		enqueued: q.after(0), at: q.after(m.Delay),
	}
	return chanq.Receipt{ID: m.ID}
}

// holder is the live message with a dedup key.
func (q *queueModel) holder(key string) *message {
	for _, m := range q.live {
		if key != "" && m.key == key {
			return m
		}
	}
	return nil
}

func (q *queueModel) state(m *message) chanq.State {
	switch {
	case m.at.ms <= q.now:
		return chanq.Ready
	case m.leasedBy == "":
		return chanq.Scheduled
	default:
		return chanq.Leased
	}
}

// in lists the live messages of a state in the order of claims.
func (q *queueModel) in(s chanq.State) []*message {
	var list []*message
	for _, m := range q.live {
		if q.state(m) == s {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b *message) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.at.ms, b.at.ms), bytes.Compare(a.id[:], b.id[:]))
	})
	return list
}

// claim leases up to n messages and returns them as they are then, with the
// time they were due at. Those whose attempts are spent are set aside.
func (q *queueModel) claim(n int, d time.Duration, by string) (claimed []message) {
	if q.paused {
		return nil
	}
	ready := q.in(chanq.Ready)
	for _, m := range ready[:min(n, len(ready))] {
		due := m.at
		m.fence++
		m.attempts++
		m.at, m.leasedBy = q.after(d), by
		if m.attempts > q.maxAttempts {
			q.bury(m, "chanq: claimed …")
			continue
		}
		leased := *m
		leased.at = due
		claimed = append(claimed, leased)
	}
	return claimed
}

// held is the message that a lease holds, or nil if the lease is lost.
func (q *queueModel) held(id chanq.ID, fence int) *message {
	if m := q.live[id]; m != nil && m.fence == fence {
		return m
	}
	return nil
}

func (q *queueModel) ack(m *message) {
	delete(q.live, m.id)
	if q.retain {
		m.at, m.leasedBy = q.after(0), ""
		if !q.keepsCopies {
			q.done = slices.DeleteFunc(q.done, func(o *message) bool { return o.id == m.id })
		}
		q.done = append(q.done, m)
	}
}

// nack takes the lease's own count of attempts. It differs from the message's
// only when that was sent again, under the ID of one that had ended: its fence
// begins anew, and may be that of a lease of the former life.
func (q *queueModel) nack(m *message, attempt int, delay time.Duration, err string) {
	if attempt >= q.maxAttempts {
		q.bury(m, err)
		return
	}
	m.fence++
	m.at, m.leasedBy, m.err = q.after(delay), "", cmp.Or(err, m.err)
}

func (q *queueModel) release(m *message, due moment) {
	m.fence++
	m.attempts--
	m.at, m.leasedBy = due, ""
}

func (q *queueModel) bury(m *message, err string) {
	delete(q.live, m.id)
	m.fence++
	m.at, m.leasedBy, m.err = q.after(0), "", cmp.Or(err, m.err)
	q.dead[m.id] = m
}

func (q *queueModel) extend(m *message, d time.Duration) { m.at = q.after(d) }

// redrive moves up to n dead messages back, in the order of dying. One stays
// while a live message has its id or key, or a dead one with its key and a
// smaller id is to go first.
func (q *queueModel) redrive(candidates []*message, n int) (moved []chanq.ID) {
	var move []*message
	for _, m := range candidates {
		blocked := q.live[m.id] != nil || q.holder(m.key) != nil || slices.ContainsFunc(candidates, func(o *message) bool {
			return m.key != "" && o.key == m.key && bytes.Compare(o.id[:], m.id[:]) < 0
		})
		if !blocked && len(move) < n {
			move = append(move, m)
		}
	}
	for _, m := range move {
		delete(q.dead, m.id)
		m.fence++
		m.attempts, m.at = 0, q.after(0)
		q.live[m.id] = m
		moved = append(moved, m.id)
	}
	return moved
}

// ended lists the messages of the dead or done table in the order of ending.
func (q *queueModel) ended(s chanq.State) []*message {
	list := slices.Clone(q.done)
	if s == chanq.Dead {
		list = slices.Collect(maps.Values(q.dead))
	}
	slices.SortFunc(list, func(a, b *message) int {
		return cmp.Or(cmp.Compare(a.at.ms, b.at.ms), bytes.Compare(a.id[:], b.id[:]))
	})
	return list
}

// endedAs is the message that an entry of the dead or done table must be: of
// copies with one ID, each has its own body.
func (q *queueModel) endedAs(s chanq.State, e chanq.Entry) *message {
	var found *message
	for _, m := range q.ended(s) {
		if m.id == e.ID && (found == nil || m.body == string(e.Body)) {
			found = m
		}
	}
	return found
}

func (q *queueModel) purge(s chanq.State) (n int) {
	switch s {
	case chanq.Dead:
		n = len(q.dead)
		clear(q.dead)
	case chanq.Done:
		n = len(q.done)
		q.done = nil
	default:
		gone := q.in(s)
		n = len(gone)
		for _, m := range gone {
			delete(q.live, m.id)
		}
	}
	return n
}

// jump advances the database's clock.
func (q *queueModel) jump(d time.Duration) {
	for _, m := range q.live {
		m.at.ms -= d.Milliseconds()
	}
}
