package order

import (
	"container/heap"
	"time"
)

// memory has the messages of a Sequencer by state: lists of those that a task is for, timers of those that wait, and counts.
type memory struct {
	cfg      *Config
	lists    [states][]*Message
	counts   [states]int // messages by state; of idle and over it means nothing
	timers   timers
	contents int // messages that have some
	bytes    int // of these
	keys     int // queues of keys
	spilled  map[*keyQueue]bool
	changed  []*keyQueue    // their first messages might move on: see queues.move
	events   int            // so far, of those that need a catch-up: see walk.done
	reading  bool           // a Read or Refill is under way
	ended    map[name]int64 // what has ended since it began: its fence
}

// name identifies a message: an ID might be sent again, and the database might give a number twice.
type name struct {
	id  [16]byte
	seq int64
}

// change notes that the first message of a key might move on.
func (y *memory) change(k *keyQueue) { y.changed = append(y.changed, k) }

// set changes the state of a message, and what depends on it.
func (y *memory) set(m *Message, to state) {
	y.counts[m.state]--
	y.counts[to]++
	n := 0
	if m.busy() {
		n--
	}
	m.state, m.task = to, nil
	if m.busy() {
		n++
	}
	m.key.busy += n
	m.key.slot.busy += n
	if to == idle || to == over {
		y.change(m.key)
	}
}

// busy returns how many messages are delivered, or are being written.
func (y *memory) busy() (n int) {
	for _, count := range y.counts[marking:over] {
		n += count
	}
	return n
}

// blocked returns how many keys have no deliverable message.
func (y *memory) blocked() int { return y.keys - y.counts[ready] }

// keeps returns how many messages a key keeps in addition to the first one.
func (y *memory) keeps() int {
	return max(y.cfg.Unread, min(y.cfg.MostUnread, y.cfg.Unread*y.cfg.Blocked/max(1, y.keys)))
}

// list puts a message on the list of a state.
func (y *memory) list(m *Message, to state) {
	y.set(m, to)
	y.lists[to] = append(y.lists[to], m)
}

// take moves up to n messages of a list to another state. only chooses them; nil: all.
func (y *memory) take(from, to state, n int, only func(*Message) bool) (taken []*Message) {
	keep := y.lists[from][:0]
	for _, m := range y.lists[from] {
		switch {
		case m.state != from: // it has left the state since
		case len(taken) >= n || only != nil && !only(m):
			keep = append(keep, m)
		default:
			y.set(m, to)
			taken = append(taken, m)
		}
	}
	clear(y.lists[from][len(keep):])
	y.lists[from] = keep
	return taken
}

// setContents replaces the contents of a message.
func (y *memory) setContents(m *Message, contents any, bytes int) {
	if m.contents != nil {
		y.contents--
		y.bytes -= m.bytes
	}
	m.contents, m.bytes = contents, bytes
	if contents != nil {
		y.contents++
		y.bytes += bytes
	}
}

// wait has a message wait in a state.
func (y *memory) wait(m *Message, in state, until time.Duration) {
	y.setContents(m, nil, 0)
	y.set(m, in)
	m.wakeAt, m.pauses = until, min(m.pauses+1, mostPauses)
	heap.Push(&y.timers, timer{until, m})
}

// pause has a message wait, longer each time in a row.
func (y *memory) pause(m *Message, in state, now time.Duration) {
	y.wait(m, in, now+firstPause<<m.pauses)
}

// wake ends the pauses that are over.
func (y *memory) wake(now time.Duration) {
	for len(y.timers) > 0 && y.timers[0].at <= now {
		t := heap.Pop(&y.timers).(timer)
		switch m := t.m; {
		case m.wakeAt != t.at: // the message has begun another pause
		case m.state == waiting && m.dueAt > now:
			y.list(m, toLook)
		case m.state == waiting:
			y.set(m, idle)
		case m.state == inTx:
			y.list(m, toAsk)
		case m.state == unsure:
			y.list(m, toUndo)
		}
	}
}

// due returns when a task of messages is due. room: contents may be read.
func (y *memory) due(room bool, now time.Duration) time.Duration {
	switch n := &y.counts; {
	case n[toLook]+n[toAsk]+n[toUndo] > 0, room && n[toFetch]+n[toMark] > 0:
		return now
	case len(y.timers) > 0:
		return y.timers[0].at
	}
	return None
}

// rests reports whether all messages wait for a time, or for the end of what closes their key.
func (y *memory) rests(now time.Duration) bool {
	for _, n := range y.counts[queued:over] {
		if n > 0 {
			return false
		}
	}
	for _, t := range y.timers {
		if t.m.state == waiting && t.m.wakeAt == t.at && t.m.dueAt <= now { // it is locked
			return false
		}
	}
	return true
}

// timers is a heap. An entry counts only if the time is that of its message.
type timers []timer

type timer struct {
	at time.Duration
	m  *Message
}

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}
