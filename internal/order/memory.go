package order

import (
	"cmp"
	"slices"
	"time"
)

// memory has the messages of a Sequencer by state: lists of messages that need a task, timers of messages that wait,
// and counts. A message has left a list when it waits, when its task is running, or when its state has changed.
type memory struct {
	cfg      *Config
	lists    [states][]*Message
	counts   [states]int // messages by state; not valid for idle and over
	timers   []timer     // by time; a timer has no effect if its message now waits for another time
	contents int         // messages with contents
	bytes    int         // of these contents
	keys     int         // queues of keys
	spilled  map[*keyQueue]bool
	changed  []*keyQueue    // their first messages might move on: see queues.move
	events   int            // number of events so far that need a catch-up: see walk.done
	reading  bool           // a Read or Refill is running
	paused   bool           // the last answer was not walked: until one is, only reads are planned
	ended    map[name]int64 // fences of messages that have ended since the Read or Refill began
}

// name identifies a message: an ID might be sent again, and the database might assign a number twice.
type name struct {
	id  [16]byte
	seq int64
}

// change notes that the first message of a key might move on.
func (y *memory) change(k *keyQueue) { y.changed = append(y.changed, k) }

// set changes the state of a message. A running task or a timer of the message has no effect from now on.
func (y *memory) set(m *Message, to state) {
	y.counts[m.state]--
	y.counts[to]++
	m.state, m.task, m.wakeAt = to, nil, 0
	if to == idle || to == over {
		y.change(m.key)
	}
}

// blocked returns how many keys have no deliverable message.
func (y *memory) blocked() int { return y.keys - y.counts[ready] }

// coming returns how many messages are deliverable, or will be after a statement.
func (y *memory) coming() int { return y.counts[toFetch] + y.counts[toMark] + y.counts[ready] }

// keeps returns how many messages a key keeps in addition to the first.
func (y *memory) keeps() int {
	return max(y.cfg.Unread, min(y.cfg.MostUnread, y.cfg.Unread*y.cfg.Blocked/max(1, y.keys)))
}

// list puts a message on the list of a state.
func (y *memory) list(m *Message, to state) {
	y.set(m, to)
	y.lists[to] = append(y.lists[to], m)
}

// take takes up to n messages from the list of a state and calls do for each. only selects them; nil selects all.
func (y *memory) take(from state, n int, only func(*Message) bool, do func(*Message)) {
	keep := y.lists[from][:0]
	for _, m := range y.lists[from] {
		switch {
		case m.state != from || m.task != nil || m.wakeAt > 0: // it has left the list
		case n <= 0 || only != nil && !only(m):
			keep = append(keep, m)
		default:
			n--
			do(m)
		}
	}
	clear(y.lists[from][len(keep):])
	y.lists[from] = keep
}

// setContents replaces the contents of a message.
func (y *memory) setContents(m *Message, contents Contents) {
	if m.contents != nil {
		y.contents--
		y.bytes -= m.contents.Bytes()
	}
	m.contents = contents
	if contents != nil {
		y.contents++
		y.bytes += contents.Bytes()
	}
}

// wait makes a message wait in a state until a time.
func (y *memory) wait(m *Message, in state, until time.Duration) {
	y.setContents(m, nil)
	y.set(m, in)
	m.wakeAt, m.pauses = until, min(m.pauses+1, mostPauses)
	i, _ := slices.BinarySearchFunc(y.timers, until,
		func(t timer, at time.Duration) int { return cmp.Compare(t.at, at) })
	y.timers = slices.Insert(y.timers, i, timer{until, m})
}

// pause makes a message wait, longer each time in a row.
func (y *memory) pause(m *Message, in state, now time.Duration) {
	y.wait(m, in, now+firstPause<<m.pauses)
}

// wake ends the waits whose time has come.
func (y *memory) wake(now time.Duration) {
	over, _ := slices.BinarySearchFunc(y.timers, now,
		func(t timer, at time.Duration) int { return cmp.Compare(t.at, at+1) })
	for _, t := range y.timers[:over] {
		switch m := t.m; {
		case m.wakeAt != t.at:
		case m.state == waiting && m.dueAt > now:
			y.list(m, toLook)
		case m.state == waiting:
			y.set(m, idle)
		default:
			y.list(m, m.state)
		}
	}
	y.timers = slices.Delete(y.timers, 0, over)
}

// due returns when a task of messages is due. room means that contents may be read.
func (y *memory) due(room bool, now time.Duration) time.Duration {
	switch l := &y.lists; {
	case len(l[inTx])+len(l[toUndo]) > 0, !y.paused &&
		(len(l[toLook]) > 0 || room && len(l[toFetch])+len(l[toMark]) > 0):
		return now
	case len(y.timers) > 0:
		return y.timers[0].at
	}
	return None
}

// rests reports whether all messages wait for a time, or for their key to open. A delay that is not stored does not
// count: another owner would begin it again.
func (y *memory) rests(now time.Duration) bool {
	for _, n := range y.counts[queued:over] {
		if n > 0 {
			return false
		}
	}
	for _, t := range y.timers {
		// Its row is locked, or it has lost leases
		if t.m.state == waiting && t.m.wakeAt == t.at && (t.m.dueAt <= now || t.m.after > now) {
			return false
		}
	}
	return true
}

type timer struct {
	at time.Duration
	m  *Message
}
