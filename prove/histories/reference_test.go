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
const maxCrashes = 3

// isKilled reports whether a message is dead-lettered by the next claim, because of its expired leases.
func (m *message) isKilled() bool { return m.lapses >= maxCrashes }

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
	holder := q.holder(m.DedupKey)
	switch {
	case holder == nil:
	case m.OnDuplicate == chanq.KeepFirst:
		return chanq.Receipt{ID: holder.id, Duplicate: true}
	case holder.leasedBy != "":
		holder.key = "" // the new one gets it
	case m.OnDuplicate == chanq.KeepQueued:
		if end := q.after(m.TTL); m.TTL == 0 || holder.expires.ms == 0 {
			holder.expires = moment{}
		} else if end.ms >= holder.expires.ms {
			holder.expires = end
		}
		return chanq.Receipt{ID: holder.id, Duplicate: true}
	default:
		q.replace(holder, m)
		return chanq.Receipt{ID: holder.id, Replaced: true}
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

// replace gives a queued message the contents of another one. Its time to live begins when it is due, or now.
func (q *queueModel) replace(m *message, by chanq.Message[string]) {
	due := m.due
	if m.due.ms <= q.now && m.priority != by.Priority {
		m.due = q.after(0) // where a claim of its new priority finds it
	}
	if by.OnDuplicate == chanq.Debounce {
		m.due = q.after(by.Delay)
		if most := cmp.Or(by.DebounceMax, 10*by.Delay).Milliseconds(); m.enqueued.ms+most <= m.due.ms {
			m.due = moment{m.enqueued.ms + most, m.enqueued.exact}
		}
	}
	switch {
	case by.TTL == 0:
		m.expires = moment{}
	case by.OnDuplicate == chanq.Replace && due.ms > q.now:
		m.expires = moment{due.ms + by.TTL.Milliseconds(), due.exact}
	default:
		m.expires = q.after(by.TTL)
	}
	m.turn = q.next()
	m.body, m.priority, m.attempts, m.lapses, m.err = by.Body, by.Priority, 0, 0, ""
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

// claim returns up to n messages that a new consumer takes, in the order of delivery. If the first message of a priority has lost a lease, the
// consumer claims one message first, and if that has, no other before it is settled. Messages whose TTL has ended, and those with maxCrashes
// expired leases, are dead-lettered: no handler gets them, and their claims do not count.
func (q *queueModel) claim(n int, d time.Duration, by string) (claimed []message) {
	if q.paused {
		return nil
	}
	chosen := slices.DeleteFunc(q.in(chanqadmin.StateReady), func(m *message) bool { return m.leasedBy != "" })
	careful, seen := false, map[chanq.Priority]bool{}
	for _, m := range chosen {
		careful = careful || !seen[m.priority] && m.lapses > 0
		seen[m.priority] = true
	}
	for i, m := range chosen[:min(n, len(chosen))] {
		m.turn = q.next()
		m.attempts++
		m.lease, m.leasedBy = q.after(d), by
		switch {
		case q.isExpired(m):
			m.attempts--
			q.deadLetter(m, "expired")
			continue
		case m.isKilled():
			m.attempts--
			q.deadLetter(m, "chanq: …")
			continue
		}
		claimed = append(claimed, *m)
		if i == 0 && careful && m.lapses > 0 {
			break
		}
	}
	return claimed
}

// rescue ends the expired lease of a message, which is due then.
func (q *queueModel) rescue(m *message, due int64) (ok bool) {
	m.turn, m.leasedBy = q.next(), ""
	m.lapses++
	if m.lapses < 2 || m.isKilled() {
		return due == m.due.ms
	}
	m.due = moment{due, true}
	return due >= q.now && due < q.now+2*time.Minute.Milliseconds()
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
	m.turn, m.lapses = q.next(), 0
	m.due, m.leasedBy, m.err = q.after(delay), "", cmp.Or(err, m.err)
}

func (q *queueModel) release(m *message) {
	m.turn = q.next()
	m.attempts--
	m.leasedBy = ""
}

func (q *queueModel) deadLetter(m *message, err string) {
	delete(q.live, m.id)
	m.turn, m.lapses, m.expires = q.next(), 0, moment{}
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
