package histories

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// queueModel is the expected state of a queue: maps, and the states of a message as docs/guarantees.md describes them. Times are Unix
// milliseconds of the database's clock. Times that a step sets are only known to be at or after the start of the step, until the database
// has been read (see settleTime).
type queueModel struct {
	live, dead map[chanq.ID]*message
	done       []*message
	paused     bool
	now        int64 // at the start of the step

	turns       *int // the number of turns so far, including those of rolled back transactions
	trial       bool // a consumer of the process has a suspect
	maxAttempts int
	retain      bool
	keepsCopies bool // a message that is done again leaves a second row
}

type message struct {
	id       chanq.ID
	body     string
	priority chanq.Priority
	key      string
	turn     int // begins with the send, a claim, or the end of a claim; each is unique
	attempts int
	lapses   int // leases in a row that expired without a settle
	crashes  int // how many of these were trials
	alone    int // as its holder marked it
	enqueued moment
	due      moment // its position
	lease    moment // end of the lease of leasedBy
	ended    moment // of a dead or done message
	expires  moment // zero: never
	leasedBy string // kept after the lease has expired
	err      string // a trailing … matches any text

	fence  int64 // of the row in turn fenced: the database chooses it
	fenced int
}

// maxCrashes is Config.MaxCrashes of all histories.
const maxCrashes = 2

// isSuspect reports whether a message might have killed its holders: two of its leases expired in a row. An expired message is not a
// suspect, since no handler gets it.
func (q *queueModel) isSuspect(m *message) bool {
	lapses := m.lapses
	if m.leasedBy != "" {
		lapses++
	}
	return lapses >= 2 && !q.isExpired(m)
}

func (q *queueModel) isExpired(m *message) bool { return m.expires.ms > 0 && m.expires.ms <= q.now }

// moment is a time that is exact after the database has been read.
type moment struct {
	ms    int64
	exact bool
}

func newModel(maxAttempts int, retain, keepsCopies bool) *queueModel {
	return &queueModel{
		live: map[chanq.ID]*message{}, dead: map[chanq.ID]*message{}, turns: new(int),
		maxAttempts: maxAttempts, retain: retain, keepsCopies: keepsCopies,
	}
}

// clone returns a copy for a transaction, which might be rolled back.
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

// next begins a turn.
func (q *queueModel) next() int {
	*q.turns++
	return *q.turns
}

// after returns the time d from now, rounded up to milliseconds.
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
	turn := q.next()
	sent := &message{
		id: m.ID, body: m.Body, priority: m.Priority, key: m.DedupKey, turn: turn, fenced: turn,
		enqueued: q.after(0), due: q.after(m.Delay),
	}
	if m.TTL > 0 {
		sent.expires = q.after(m.TTL)
	}
	q.live[m.ID] = sent
	return chanq.Receipt{ID: m.ID}
}

// holder returns the live message with a dedup key.
func (q *queueModel) holder(key string) *message {
	for _, m := range q.live {
		if key != "" && m.key == key {
			return m
		}
	}
	return nil
}

func (q *queueModel) state(m *message) chanqadmin.State {
	switch {
	case m.leasedBy != "" && m.lease.ms > q.now:
		return chanqadmin.StateLeased
	case m.due.ms <= q.now:
		return chanqadmin.StateReady
	default:
		return chanqadmin.StateScheduled
	}
}

// in lists the live messages of a state in the order of delivery.
func (q *queueModel) in(s chanqadmin.State) []*message {
	var list []*message
	for _, m := range q.live {
		if q.state(m) == s {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, inOrder)
	return list
}

// inOrder compares by the order of delivery: priority, then due time, which a lease does not change.
func inOrder(a, b *message) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.due.ms, b.due.ms), bytes.Compare(a.id[:], b.id[:]))
}

// claim returns the messages that a new consumer takes, in the order of delivery: a suspect that precedes all others of its priority, then
// up to n messages that are not suspects, then a suspect behind some of these. A suspect is taken only while no consumer of the process has
// one. Expired messages are dead-lettered, and so is a suspect whose lease expired in its last trial: no handler gets them, and their
// claims do not count. During a last trial the consumer takes nothing else. busy reports whether a last trial has to wait until earlier
// claimed messages are settled.
func (q *queueModel) claim(n int, d time.Duration, by string) (claimed []message, busy bool) {
	if q.paused {
		return nil, false
	}
	claimed = q.trySuspects(d, by)
	if len(claimed) == 1 && claimed[0].alone == 2 {
		return claimed, false
	}
	chosen := slices.DeleteFunc(q.in(chanqadmin.StateReady), q.isSuspect)
	for _, m := range chosen[:min(n, len(chosen))] {
		q.take(m, d, by)
		if q.isExpired(m) {
			m.attempts--
			q.deadLetter(m, "expired")
			continue
		}
		claimed = append(claimed, *m)
	}
	for _, m := range q.trySuspects(d, by) {
		busy = m.alone == 2 && len(claimed) > 0
		claimed = append(claimed, m)
	}
	return claimed, busy
}

// trySuspects takes suspects until one of them is delivered, and returns it.
func (q *queueModel) trySuspects(d time.Duration, by string) []message {
	for m := q.firstSuspect(); m != nil && !q.trial; m = q.firstSuspect() {
		was := m.alone
		q.take(m, d, by)
		if was == 2 && m.crashes >= maxCrashes {
			m.attempts--
			q.deadLetter(m, "chanq: …")
			continue
		}
		q.trial, m.alone = true, 1
		if m.crashes >= maxCrashes-1 {
			m.alone = 2
		}
		return []message{*m}
	}
	return nil
}

// firstSuspect returns the suspect of the highest priority that no ready message of its priority precedes.
func (q *queueModel) firstSuspect() *message {
	seen := map[chanq.Priority]bool{}
	for _, m := range q.in(chanqadmin.StateReady) {
		if !seen[m.priority] && q.isSuspect(m) {
			return m
		}
		seen[m.priority] = true
	}
	return nil
}

// take leases a message.
func (q *queueModel) take(m *message, d time.Duration, by string) {
	if m.leasedBy != "" {
		m.lapses++
		if m.alone > 0 {
			m.crashes++
		}
	}
	m.turn = q.next()
	m.attempts++
	m.lease, m.leasedBy, m.alone = q.after(d), by, 0
}

// held returns the message that a lease has held since a turn, or nil if the lease is lost.
func (q *queueModel) held(id chanq.ID, turn int) *message {
	if m := q.live[id]; m != nil && m.turn == turn {
		return m
	}
	return nil
}

func (q *queueModel) ack(m *message) {
	delete(q.live, m.id)
	if q.retain {
		m.ended, m.leasedBy, m.expires = q.after(0), "", moment{}
		if !q.keepsCopies {
			q.done = slices.DeleteFunc(q.done, func(o *message) bool { return o.id == m.id })
		}
		q.done = append(q.done, m)
	}
}

func (q *queueModel) nack(m *message, delay time.Duration, err string) {
	if m.attempts-m.lapses >= q.maxAttempts {
		q.deadLetter(m, err)
		return
	}
	m.attempts -= m.lapses // the lapses are not failures of the message
	m.turn, m.lapses, m.crashes, m.alone = q.next(), 0, 0, 0
	m.due, m.leasedBy, m.err = q.after(delay), "", cmp.Or(err, m.err)
}

func (q *queueModel) release(m *message) {
	m.turn = q.next()
	m.attempts--
	m.leasedBy, m.alone = "", 0
}

func (q *queueModel) deadLetter(m *message, err string) {
	delete(q.live, m.id)
	m.turn, m.lapses, m.crashes, m.alone, m.expires = q.next(), 0, 0, 0, moment{}
	m.ended, m.leasedBy, m.err = q.after(0), "", cmp.Or(err, m.err)
	q.dead[m.id] = m
}

// extend keeps the later of two ends. If they are close, the database determines which.
func (q *queueModel) extend(m *message, d time.Duration) {
	if end := q.after(d); end.ms+time.Minute.Milliseconds() > m.lease.ms {
		m.lease = moment{ms: max(end.ms, m.lease.ms)}
	}
}

// redrive moves up to n dead messages back, in the order in which they died. A message stays if a live message has its id or key, or if a
// dead message with its key and a smaller id precedes it.
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
		m.turn = q.next()
		m.attempts, m.due = 0, q.after(0)
		q.live[m.id] = m
		moved = append(moved, m.id)
	}
	return moved
}

// ended lists the messages of the dead or done table in the order of ending.
func (q *queueModel) ended(s chanqadmin.State) []*message {
	list := slices.Clone(q.done)
	if s == chanqadmin.StateDead {
		list = slices.Collect(maps.Values(q.dead))
	}
	slices.SortFunc(list, func(a, b *message) int {
		return cmp.Or(cmp.Compare(a.ended.ms, b.ended.ms), bytes.Compare(a.id[:], b.id[:]))
	})
	return list
}

// endedAs returns the message of an entry of the dead or done table. Copies with the same ID are distinguished by their bodies.
func (q *queueModel) endedAs(s chanqadmin.State, e chanqadmin.Entry) *message {
	var found *message
	for _, m := range q.ended(s) {
		if m.id == e.ID && (found == nil || m.body == string(e.Body)) {
			found = m
		}
	}
	return found
}

func (q *queueModel) purge(s chanqadmin.State) (n int) {
	switch s {
	case chanqadmin.StateDead:
		n = len(q.dead)
		clear(q.dead)
	case chanqadmin.StateDone:
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
		m.due.ms -= d.Milliseconds()
		m.lease.ms -= d.Milliseconds()
		if m.expires.ms > 0 {
			m.expires.ms -= d.Milliseconds()
		}
	}
}
