package order

import (
	"container/heap"
	"time"
)

// state is the state of a message: see the package comment.
type state uint8

const (
	idle state = iota
	waiting
	queued
	toLook
	looking
	toFetch
	fetching
	toMark
	ready
	marking // from here on busy
	out
	inTx
	toAsk // inTx, and its row is to be looked at
	asking
	toUndo // by a Lapse if it was given to a reader, else by a Release
	undoing
	unsure // that is repeated later
	over
	states
)

// Message is a message in memory. Its exported fields must only be read.
type Message struct {
	ID    [16]byte
	Seq   int64
	Slot  int
	Fence int64 // stored

	// Unfetched is the caller's: the last Fetch of this message alone has failed, and a look at its row has not.
	Unfetched bool

	key      *keyQueue
	state    state
	task     *Task    // under way
	gate     *catchUp // waits until it has ended; nil: does not wait
	contents any
	bytes    int
	mustMark bool // another consumer might have delivered it, or it is a suspect
	mine     bool // this consumer has marked it, or might have
	suspect  bool
	locked   bool // a transaction had locked its row: it is fetched later
	counted  bool // among the keys at work of its slot
	given    bool // delivered since it was last given back
	returned bool // its handler has returned, after an ack in a transaction
	crashes  int
	delivery int64 // fence of the last delivery; 0: none
	redriven int64 // the queue's counter before that
	dueAt    time.Duration
	diesAt   time.Duration // end of the TTL; 0: none
	until    time.Duration // inTx: end of the lease
	wakeAt   time.Duration // of its timer
	pauses   uint8
	peeks    uint8
}

// Crashes returns how many processes ended while they handled the message alone.
func (m *Message) Crashes() int { return m.crashes }

// SlotFence returns the fence of the message's slot.
func (m *Message) SlotFence() int64 { return m.key.slot.Fence }

// Delivery returns the fence of the last delivery, or the fence that a delivery would have.
func (m *Message) Delivery() int64 { return max(m.delivery, DeliveryFence(m.Fence, m.key.slot.Fence)) }

func (m *Message) busy() bool { return m.state >= marking && m.state < over }

// set changes the state of a message, and the counts that depend on it.
func (s *Sequencer) set(m *Message, to state) {
	was := m.busy()
	if m.state == ready {
		s.nReady--
	}
	m.state, m.task = to, nil
	if to == ready {
		s.nReady++
	}
	if is := m.busy(); is != was {
		n := 1
		if was {
			n = -1
		}
		m.key.busy += n
		m.key.slot.busy += n
		s.busy += n
	}
}

// list puts a message on the list of a state.
func (s *Sequencer) list(m *Message, to state) {
	s.set(m, to)
	s.lists[to] = append(s.lists[to], m)
}

// take moves up to n messages of a list to another state. only chooses them; nil: all.
func (s *Sequencer) take(from, to state, n int, only func(*Message) bool) (taken []*Message) {
	keep := s.lists[from][:0]
	for _, m := range s.lists[from] {
		switch {
		case m.state != from: // it has left the state since
		case len(taken) >= n || only != nil && !only(m):
			keep = append(keep, m)
		default:
			s.set(m, to)
			taken = append(taken, m)
		}
	}
	clear(s.lists[from][len(keep):])
	s.lists[from] = keep
	return taken
}

// setContents replaces the contents of a message.
func (s *Sequencer) setContents(m *Message, contents any, bytes int) {
	if m.contents != nil {
		s.withContents--
		s.bytes -= m.bytes
	}
	m.contents, m.bytes = contents, bytes
	if contents != nil {
		s.withContents++
		s.bytes += bytes
	}
}

// adopt takes over what a row says of its message.
func (s *Sequencer) adopt(m *Message, row *Row, now time.Duration) {
	m.Fence, m.crashes, m.locked = row.Fence, row.Crashes, row.Lock == Locked
	m.mine = row.Holder == Mine && row.Fence >= m.key.slot.Fence
	m.suspect = row.Lapses >= suspectAfter
	raised := m.mine || m.delivery > 0 && row.Fence > m.delivery
	m.mustMark = !raised && (m.Seq <= m.key.slot.Old || row.Holder == Others) || m.suspect && !m.mine
	m.dueAt, m.diesAt = now+row.Wait, 0
	if row.Lives != 0 {
		m.diesAt = max(1, now+row.Lives)
	}
	s.setContents(m, row.Contents, row.Bytes)
}

// giveBack notes that a delivery or a mark ended with a greater stored fence. Its contents are read again, with its row.
func (s *Sequencer) giveBack(m *Message, fence int64, now time.Duration) {
	m.Fence, m.mine, m.given, m.suspect = fence, false, false, false
	m.mustMark = m.delivery == 0 && m.Seq <= m.key.slot.Old
	m.pauses, m.peeks = 0, 0
	s.setContents(m, nil, 0)
	s.set(m, idle)
	s.leaveTrial(m)
	s.uncount(m, now)
}

// end takes a message out of memory.
func (s *Sequencer) end(m *Message, now time.Duration) {
	if s.reading != nil {
		s.ended[name{m.ID, m.Seq}] = max(m.Fence, m.delivery)
	}
	s.set(m, over)
	s.setContents(m, nil, 0)
	m.key.remove(m)
	s.leaveTrial(m)
	s.uncount(m, now)
}

// recall takes back a message that is not the first one of an open key any more.
func (s *Sequencer) recall(m *Message, now time.Duration) {
	if m.busy() || m.state == over {
		return
	}
	s.set(m, idle)
	s.uncount(m, now)
	s.standBack(m)
}

// wait has a message wait until it is due, or until another pause has ended.
func (s *Sequencer) wait(m *Message, to state, at time.Duration) {
	s.setContents(m, nil, 0)
	s.set(m, to)
	m.wakeAt = at
	heap.Push(&s.timers, timer{at, m})
}

// pause has a message wait, longer each time in a row.
func (s *Sequencer) pause(m *Message, to state, now time.Duration) {
	s.wait(m, to, now+firstPause<<m.pauses)
	m.pauses = min(m.pauses+1, mostPauses)
}

// wake does what is due.
func (s *Sequencer) wake(now time.Duration) {
	for len(s.timers) > 0 && s.timers[0].at <= now {
		t := heap.Pop(&s.timers).(timer)
		m := t.m
		if m.wakeAt != t.at {
			continue
		}
		switch m.state {
		case waiting:
			s.set(m, idle)
			if m.dueAt > now {
				s.list(m, toLook)
			} else {
				s.advance(m.key, now)
			}
		case inTx:
			s.list(m, toAsk)
		case unsure:
			s.list(m, toUndo)
		}
	}
	s.tryAgain(now)
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
