// Package order keeps the messages of each key in order for the consumer that owns their slots. It makes no
// statement and knows no clock: it says what to read and to write, and is told the answers.
//
// # States
//
// A message in memory is unread (in the queue of its key), waits (not due, or to be looked at later), is listed
// for one of the statements below, is out (delivered, or its settle under way), or troubled (nobody knows
// what became of its delivery). One message of a key is out, troubled or being marked at a time, the one with the
// smallest number. A key keeps few unread messages; of the others it knows from which number on they are:
// it is spilled from there.
//
//	unread ─▶ marks ─▶ unread, marked          a message that another consumer may have delivered
//	unread ─▶ wants ─▶ unread, with contents   one of which only the row is known
//	unread ─▶ ready ─▶ out ─▶ over             acked, dead
//	                    ├───▶ unread           nacked, released: under a higher fence
//	                    └───▶ troubled ─▶ lapses ─▶ unread under a higher fence, or over
//
// # Reads
//
// Slots that were taken together form a group with a cursor, up to where it has read, and a watermark, up to
// where nothing can appear any more (safe). A catch-up reads a range below the cursor again; what the answer
// that asked for it and later ones bring waits until it has ended. Groups with one cursor become one.
//
// # Failures
//
// An answer that does not come changes nothing, but everything is read again from 0. A slot that is lost is
// dropped: what was out of it is its reader's until its lease ends, and nothing that becomes of it counts.
package order

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config is what a Sequencer is made with.
type Config struct {
	Unread  int  // messages that a key keeps, at most
	Most    int  // the same, while there are few keys; 0: no more than Unread
	Blocked int  // keys that may be blocked before nothing is read any more
	Bytes   int  // of contents that wait
	Behind  int  // rows up to the cursor that a main read returns, at most; 0: none, as the cursor is the watermark
	Holds   bool // a dead message holds its key
	Rows    int  // of one read, at most
	Suspect func(row *Row) bool
}

// None is the number behind all messages.
const None = math.MaxInt64

// The pauses of a Sequencer.
const (
	heldEvery    = time.Second
	slowEvery    = 10 * time.Second
	slowShare    = 20 // a slow read takes at most a twentieth of the time
	firstPause   = 20 * time.Millisecond
	peekEvery    = time.Second // of a message that waits
	mostPeeks    = 3
	mostPauses   = 6
	firstTxLook  = 50 * time.Millisecond
	mostTxPauses = 4
)

// Row is a row of an answer.
type Row struct {
	ID       [16]byte
	Seq      int64
	Slot     int
	Key      string
	Keyed    bool // false: Key is the ID
	Fence    int64
	Wait     time.Duration // until it may be delivered
	Held     bool
	Holder   Holder
	Attempts int
	Lapses   int
	Content  any // nil: not given
	Bytes    int
}

// Holder is who has marked a message.
type Holder uint8

// The holders.
const (
	Nobody Holder = iota
	Mine
	Others
)

// Status is what every answer says beside its rows.
type Status struct {
	Walked   bool
	Redriven int64
	// Of a read:
	Drawn   int64
	Senders []string
	Renamed bool
	Upto    int64 // of a refill
}

// Taken is a slot that was taken.
type Taken struct {
	Slot  int
	Fence int64
	Old   int64 // numbers up to it are marked before delivery
	Most  int   // keys that may be at work; 0: no bound
}

// Message is one that is in memory. Its exported fields are the caller's to read while it has the message from one
// of the lists, or delivered.
type Message struct {
	ID       [16]byte
	Seq      int64
	Slot     int
	Fence    int64 // stored
	Delivery int64 // of its last delivery
	Content  any
	Token    any // of the delivery; the caller's
	Suspect  bool

	key      *keyQueue
	state    state
	gate     *catchUp
	marked   bool
	others   bool // another has marked it
	counted  bool // among the slot's keys at work
	bytes    int
	dueAt    time.Duration // of unread, waits and troubled
	pauses   uint8
	peeks    uint8
	redriven int64 // as it was at the delivery
	look     bool  // its row is to be looked at before anything
	tx       bool  // out, and acked in a transaction
	until    time.Duration
	attempts int
}

type state uint8

const (
	unread state = iota
	waits
	queued   // among the suspects, or the keys of a slot that is at its most
	wanted   // in wants
	fetching // its contents are being read
	toMark   // in marks
	ready    // in ready
	marking  // from here on busy
	out
	troubled
	lapsing
	releasing
	over
)

func (m *Message) busy() bool { return m.state >= marking && m.state < over }

type keyName struct {
	slot  int
	name  string
	keyed bool
}

// keyQueue is the messages of one key.
type keyQueue struct {
	slot  *slot
	name  keyName
	all   []*Message // by number
	busy  int
	spill int64 // messages from here on are not in memory
	held  bool
	note  int64 // redriven when it was held, or asked about
}

type slot struct {
	Taken
	group   *group
	keys    map[keyName]*keyQueue
	busy    int
	atWork  int
	blocked []*Message
	closing bool
	doubt   bool // what became of some delivery is not known
}

type group struct {
	slots        []*slot
	safe, cursor int64
	pend, next   *catchUp
	behind       int  // rows that the last read found up to the cursor
	full         bool // the last read did not come to the end
	read         bool
	slowAt       time.Duration
	slowBegan    time.Duration
	walk         int64         // where refills go on
	turn         bool          // a main read comes before the next catch-up
	catchAt      time.Duration // no catch-up begins before: they take half of the time at most
}

type catchUp struct {
	from, pos int64
	begun     bool
	slow      bool
	done      bool
	waiting   []*keyQueue
}

// Sequencer is safe for concurrent use. It locks itself for moments.
type Sequencer struct {
	cfg Config

	mu       sync.Mutex
	slots    map[int]*slot
	groups   []*group
	water    Watermark
	redriven int64
	knows    bool // redriven
	reading  bool
	tombs    map[int64]int64 // of what has ended while a read was under way: its fence by its number
	timers   timers
	ready    []*Message
	wants    []*Message
	marks    []*Message
	lapses   []*Message
	releases []*Message
	looks    []*Message
	suspect  *Message
	suspects []*Message
	spilled  map[*keyQueue]bool
	holding  map[*keyQueue]bool
	heldAt   time.Duration
	unread   int // with contents, behind others
	bytes    int
	nReady   int
	keys     int
	changed  func()
}

// New returns a Sequencer. changed is called, under its lock, when there is something new to do; it must not call
// back.
func New(cfg Config, changed func()) *Sequencer {
	return &Sequencer{cfg: cfg, changed: changed, slots: map[int]*slot{}, tombs: map[int64]int64{}, spilled: map[*keyQueue]bool{}, holding: map[*keyQueue]bool{}}
}

// Open begins with slots that were taken.
func (s *Sequencer) Open(list []Taken, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &group{slowAt: now + slowEvery}
	for _, t := range list {
		sl := &slot{Taken: t, group: g, keys: map[keyName]*keyQueue{}}
		if was := s.slots[t.Slot]; was != nil {
			s.keep(was, sl)
		}
		s.drop(t.Slot)
		s.slots[t.Slot] = sl
		g.slots = append(g.slots, sl)
	}
	slices.SortFunc(g.slots, func(a, b *slot) int { return cmp.Compare(a.Slot, b.Slot) })
	s.groups = append(s.groups, g)
	s.changed()
}

// keep takes over what is out of a slot that was taken again while it was owned. Its readers have it yet.
func (s *Sequencer) keep(was, sl *slot) {
	for name, k := range was.keys {
		busy := slices.Clone(k.all)
		if busy = slices.DeleteFunc(busy, func(m *Message) bool { return !m.busy() }); len(busy) == 0 {
			continue
		}
		kept := &keyQueue{slot: sl, name: name, all: busy, busy: len(busy), spill: None, held: k.held, note: k.note}
		sl.keys[name] = kept
		s.keys++
		if kept.held {
			s.holding[kept] = true
		}
		k.all = slices.DeleteFunc(k.all, (*Message).busy)
		for _, m := range busy {
			m.key, m.gate = kept, nil
			sl.busy++
			was.busy--
			if m.counted {
				sl.atWork++
				was.atWork--
			}
		}
		k.busy = 0
	}
}

// Close begins to give a slot back: nothing more of it is delivered, and what is marked is released.
func (s *Sequencer) Close(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.slots[number]
	if sl == nil || sl.closing {
		return
	}
	sl.closing = true
	sl.leave(s)
	for _, k := range sl.keys {
		for _, m := range slices.Clone(k.all) {
			switch {
			case m.state == troubled || m.state == lapsing:
				sl.doubt = true
				s.end(m, 0)
			case m.busy():
			case m.marked:
				s.set(m, releasing)
				s.releases = append(s.releases, m)
			default:
				s.end(m, 0)
			}
		}
	}
	s.changed()
}

// leave takes a slot out of its group.
func (sl *slot) leave(s *Sequencer) {
	if g := sl.group; g != nil {
		g.slots = slices.DeleteFunc(g.slots, func(o *slot) bool { return o == sl })
		if len(g.slots) == 0 {
			s.groups = slices.DeleteFunc(s.groups, func(o *group) bool { return o == g })
		}
	}
	sl.group = nil
}

// Drop forgets a slot that was given back, or lost.
func (s *Sequencer) Drop(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(number)
}

func (s *Sequencer) drop(number int) {
	sl := s.slots[number]
	if sl == nil {
		return
	}
	sl.closing = true
	sl.leave(s)
	for _, k := range sl.keys {
		for _, m := range slices.Clone(k.all) {
			s.end(m, 0)
		}
		s.forget(k)
	}
	delete(s.slots, number)
}

// Busy is how many messages of a slot are out, or being written.
func (s *Sequencer) Busy(number int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl := s.slots[number]; sl != nil {
		return sl.busy
	}
	return 0
}

// Drained returns the slots that are being given back and have nothing out, and which of them are in doubt.
func (s *Sequencer) Drained() (drained []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, sl := range s.slots {
		if sl.closing && sl.busy == 0 {
			drained = append(drained, n)
		}
	}
	return drained
}

// Doubts reports whether numbers up to the last one drawn must be marked by the next owner of a slot.
func (s *Sequencer) Doubts(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.slots[number]
	return sl == nil || sl.doubt
}

// Leaving reports whether a message is of a slot that is being given back, or gone.
func (s *Sequencer) Leaving(m *Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.state == over || m.key.slot.closing
}

// Kind is that of a read.
type Kind uint8

// The kinds of reads.
const (
	Main Kind = iota
	CatchUp
	Refill
)

// Read is a read to be made.
type Read struct {
	Kind         Kind
	Slots        []Taken
	From, Cursor int64
	Upto, Old    int64
	Rows         int
	Keys         []string // Refill: only these; else their rows come without contents

	group  *group
	catch  *catchUp
	refill []*keyQueue
	began  time.Duration
}

// Plan returns the next read, or nil. room is how many messages there is room for; poll asks for a read though
// nothing says that there is more. Each read must be told to Answer or Failed before the next.
func (s *Sequencer) Plan(now time.Duration, room int, poll bool) *Read {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	r := s.plan(now, room, poll)
	if r == nil {
		return nil
	}
	clear(s.tombs)
	s.reading = true
	r.began = now
	for _, sl := range r.group.slots {
		r.Slots = append(r.Slots, sl.Taken)
		r.Old = max(r.Old, sl.Old)
	}
	return r
}

func (s *Sequencer) plan(now time.Duration, room int, poll bool) *Read {
	for _, g := range s.groups {
		if g.pend == nil && now >= g.slowAt && g.read && !g.full {
			s.catchUp(g, 0, true)
			g.slowBegan = now
		}
		for g.pend != nil && g.pend.pos >= g.cursor {
			s.caughtUp(g, now)
		}
		c := g.pend
		if c == nil {
			continue
		}
		early := now < g.catchAt && !c.begun
		if early && !(poll || g.full) {
			continue
		}
		if !c.begun && (s.cfg.Behind > 0 || g.turn || early) && room > 0 && s.blocked() < s.cfg.Blocked && g.lead(s.groups) {
			// Catch-ups may follow each other without an end. What is read meanwhile waits for them; where one
			// statement reads the range of the catch-up and what is above the cursor, it is both.
			g.turn = false
			r := s.main(g, room)
			if s.cfg.Behind > 0 && now >= g.catchAt {
				c.begun = true
				r.catch, r.From = c, min(r.From, c.from)
			}
			return r
		}
		if early {
			continue
		}
		c.begun = true
		return &Read{Kind: CatchUp, group: g, catch: c, From: c.pos, Cursor: c.pos, Upto: g.cursor, Rows: s.cfg.Rows}
	}
	s.merge()
	if r := s.refill(room); r != nil {
		return r
	}
	if room <= 0 || s.blocked() >= s.cfg.Blocked {
		return nil
	}
	var best *group
	for _, g := range s.groups {
		if (poll || g.full || !g.read) && (best == nil || g.cursor < best.cursor) {
			best = g
		}
	}
	if best == nil {
		return nil
	}
	return s.main(best, room)
}

// main is the read of a group from its cursor on.
func (s *Sequencer) main(g *group, room int) *Read {
	r := &Read{Kind: Main, group: g, From: g.safe, Cursor: g.cursor, Upto: None, Rows: min(room, s.cfg.Rows)}
	if s.cfg.Behind > 0 {
		r.Rows = max(0, min(r.Rows, s.cfg.Behind-g.behind))
	}
	for _, o := range s.groups {
		if o.cursor > g.cursor {
			r.Upto = min(r.Upto, o.cursor)
		}
	}
	for k := range s.spilled {
		if k.slot.group == g {
			r.Keys = append(r.Keys, k.name.name)
		}
	}
	return r
}

// lead reports whether no group is behind this one.
func (g *group) lead(all []*group) bool {
	return !slices.ContainsFunc(all, func(o *group) bool { return o.cursor < g.cursor })
}

// blocked is how many keys have messages of which none may go.
func (s *Sequencer) blocked() int { return s.keys - s.nReady }

// merge makes one of groups that have come to one place.
func (s *Sequencer) merge() {
	for i := 0; i < len(s.groups); i++ {
		for j := len(s.groups) - 1; j > i; j-- {
			a, b := s.groups[i], s.groups[j]
			if a.cursor != b.cursor || !a.read || !b.read || a.pend != nil || b.pend != nil {
				continue
			}
			for _, sl := range b.slots {
				sl.group = a
			}
			a.slots = append(a.slots, b.slots...)
			slices.SortFunc(a.slots, func(x, y *slot) int { return cmp.Compare(x.Slot, y.Slot) })
			a.safe, a.full, a.walk, a.slowAt = min(a.safe, b.safe), a.full || b.full, min(a.walk, b.walk), min(a.slowAt, b.slowAt)
			s.groups = slices.Delete(s.groups, j, j+1)
		}
	}
}

// refill is the read of keys that are spilled and have nothing before that in memory. All share one walk, which
// goes on where the one before has ended.
func (s *Sequencer) refill(room int) *Read {
	if room <= 0 {
		return nil
	}
	var r *Read
	first := int64(None)
	var g *group
	for again := range 2 {
		for k := range s.spilled {
			if k.held || k.slot.closing || len(k.all) > 0 && k.all[0].Seq < k.spill {
				continue
			}
			from := min(k.slot.group.safe, k.spill-1)
			if from < k.slot.group.walk && again == 0 {
				continue
			}
			if from < first || g == nil {
				first, g = from, k.slot.group
			}
		}
		if g != nil {
			break
		}
	}
	if g == nil {
		return nil
	}
	r = &Read{Kind: Refill, group: g, From: first, Upto: g.cursor}
	for k := range s.spilled {
		if k.slot.group == g && !k.held && !k.slot.closing && (len(k.all) == 0 || k.all[0].Seq >= k.spill) && min(g.safe, k.spill-1) >= first {
			r.refill = append(r.refill, k)
			r.Keys = append(r.Keys, k.name.name)
		}
	}
	r.Rows = min(s.cfg.Rows, s.most()*len(r.refill)+1)
	return r
}

// event is what an answer says beside its rows.
func (s *Sequencer) event(st *Status, sampled bool, now time.Duration) (forgotten bool) {
	from := int64(None)
	if sampled {
		from, forgotten = s.water.Sample(st.Drawn, st.Senders, st.Renamed, now)
	}
	if s.knows && st.Redriven != s.redriven {
		from = 0
	}
	s.redriven, s.knows = st.Redriven, true
	if from < None {
		for _, g := range s.groups {
			s.catchUp(g, from, false)
		}
	}
	return forgotten
}

// catchUp asks for one that begins after this answer.
func (s *Sequencer) catchUp(g *group, from int64, slow bool) {
	switch {
	case g.pend == nil:
		g.pend = &catchUp{from: from, pos: from, slow: slow}
	case !g.pend.begun:
		g.pend.from, g.pend.pos = min(g.pend.from, from), min(g.pend.from, from)
	case g.next == nil:
		g.next = &catchUp{from: from, pos: from}
	default:
		g.next.from, g.next.pos = min(g.next.from, from), min(g.next.from, from)
	}
}

func (s *Sequencer) caughtUp(g *group, now time.Duration) {
	c := g.pend
	c.done, g.turn = true, true
	if c.slow {
		g.slowAt = now + max(slowEvery, slowShare*(now-g.slowBegan))
	}
	g.pend, g.next = g.next, nil
	for _, k := range c.waiting {
		s.advance(k, now)
	}
}

func (g *group) gate() *catchUp {
	if g.next != nil {
		return g.next
	}
	return g.pend
}

// ReadAll has everything read again, before anything that is read from now on is delivered: after a session
// was lost.
func (s *Sequencer) ReadAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if g.read {
			s.catchUp(g, 0, false)
		}
	}
}

// Failed says that there is no answer to a read.
func (s *Sequencer) Failed(*Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = false
}

// Answer takes the answer to a read. It reports whether the database has forgotten numbers: then all slots
// are to be taken again.
func (s *Sequencer) Answer(r *Read, st *Status, rows []Row, now time.Duration) (forgotten bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = false
	if !st.Walked {
		return false
	}
	safeUpto := s.water.Ready() // by earlier answers
	if s.event(st, true, now) {
		return true
	}
	g, gate := r.group, r.group.gate()
	ahead, behind, aboveSafe := 0, 0, 0
	last, lastBehind := r.Cursor, r.From
	for i := range rows {
		if rows[i].Seq > r.Cursor {
			ahead++
			last = max(last, rows[i].Seq)
			continue
		}
		behind++
		lastBehind = max(lastBehind, rows[i].Seq)
		if rows[i].Seq > g.safe {
			aboveSafe++
		}
	}
	cut := ahead >= r.Rows
	switch r.Kind {
	case Refill:
		for _, k := range r.refill {
			k.spill = None
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Seq, b.Seq) })
	for i := range rows {
		s.insert(g, &rows[i], gate, st.Redriven, now)
	}
	switch r.Kind {
	case Refill:
		upto := st.Upto
		if upto >= r.Upto {
			upto = None
		}
		for _, k := range r.refill {
			if upto < None {
				k.spill = min(k.spill, upto+1)
			}
			if k.spill == None {
				delete(s.spilled, k)
				s.advance(k, now)
			}
		}
		g.walk = upto
		if upto == None {
			g.walk = 0
		}
	case CatchUp:
		if r.catch != g.pend {
			break
		}
		if r.catch.pos = last; !cut {
			g.catchAt = now + now - r.began
			s.caughtUp(g, now)
		}
	case Main:
		covered := r.Upto
		if cut {
			covered = last
		} else if r.Upto < None {
			last = r.Upto
		}
		whole := s.cfg.Behind == 0 || behind < s.cfg.Behind
		g.read, g.full, g.behind = true, cut || r.Upto < None || !whole, aboveSafe
		if !whole {
			covered = min(covered, lastBehind)
		}
		g.cursor = max(g.cursor, last)
		g.safe = max(g.safe, min(safeUpto, covered))
		g.cursor = max(g.cursor, g.safe)
		if r.catch != nil && r.catch == g.pend {
			if whole {
				g.catchAt = now + now - r.began
				s.caughtUp(g, now)
			} else {
				r.catch.pos = max(r.catch.pos, lastBehind)
			}
		}
	}
	return false
}

// insert takes a row into the queue of its key.
func (s *Sequencer) insert(g *group, row *Row, gate *catchUp, redriven int64, now time.Duration) {
	sl := s.slots[row.Slot]
	if sl == nil || sl.group != g {
		return
	}
	if fence, ended := s.tombs[row.Seq]; ended && row.Fence <= fence {
		return
	}
	name := keyName{row.Slot, row.Key, row.Keyed}
	k := sl.keys[name]
	if k == nil {
		k = &keyQueue{slot: sl, name: name, spill: None}
		sl.keys[name] = k
		s.keys++
	}
	if row.Held && !k.held {
		s.hold(k, redriven)
	}
	if row.Seq >= k.spill {
		return
	}
	i := len(k.all)
	for i > 0 && k.all[i-1].Seq >= row.Seq {
		i--
	}
	if i < len(k.all) && k.all[i].Seq == row.Seq {
		return
	}
	m := &Message{ID: row.ID, Seq: row.Seq, Slot: row.Slot, key: k, gate: gate}
	m.adopt(s, row, now)
	m.marked = row.Holder == Mine && row.Fence >= sl.Fence
	if row.Content != nil && s.bytes+row.Bytes > s.cfg.Bytes && len(k.all) > 0 {
		s.setContent(m, nil, 0)
	}
	k.all = slices.Insert(k.all, i, m)
	if i == 0 && len(k.all) > 1 {
		s.recall(k.all[1])
	}
	if len(k.all) > s.most()+1 {
		if last := k.all[len(k.all)-1]; !last.busy() && !last.marked {
			k.all = k.all[:len(k.all)-1]
			s.uncount(last, now)
			s.setContent(last, nil, 0)
			last.state = over
			k.spill = min(k.spill, last.Seq)
			s.spilled[k] = true
		}
	}
	if gate != nil {
		gate.waiting = append(gate.waiting, k)
	}
	s.advance(k, now)
}

// most is how many unread messages a key keeps: more than Unread while there are few keys.
func (s *Sequencer) most() int {
	return max(s.cfg.Unread, min(s.cfg.Most, s.cfg.Unread*s.cfg.Blocked/max(1, s.keys)))
}

// adopt takes what a row says of its message.
func (m *Message) adopt(s *Sequencer, row *Row, now time.Duration) {
	m.Fence, m.others, m.attempts = row.Fence, row.Holder == Others, row.Attempts
	m.Suspect = s.cfg.Suspect != nil && s.cfg.Suspect(row)
	m.dueAt, m.look = now, false
	if row.Wait > 0 {
		m.dueAt = now + row.Wait
	}
	s.setContent(m, row.Content, row.Bytes)
}

func (s *Sequencer) setContent(m *Message, content any, bytes int) {
	if m.Content != nil {
		s.unread--
		s.bytes -= m.bytes
	}
	m.Content, m.bytes = content, bytes
	if content != nil {
		s.unread++
		s.bytes += bytes
	}
}

// set changes the state of a message, and the counts.
func (s *Sequencer) set(m *Message, to state) {
	was := m.busy()
	if m.state == ready {
		s.nReady--
	}
	m.state = to
	if to == ready {
		s.nReady++
	}
	switch is := m.busy(); {
	case is && !was:
		m.key.busy++
		m.key.slot.busy++
	case was && !is:
		m.key.busy--
		m.key.slot.busy--
	}
}

// recall takes a message off the lists, as another is before it now.
func (s *Sequencer) recall(m *Message) {
	switch m.state {
	case ready, wanted, toMark, queued, waits:
		s.set(m, unread)
		s.clear(m)
	}
}

// end takes a message out of memory.
func (s *Sequencer) end(m *Message, now time.Duration) {
	if m.state == over {
		return
	}
	if s.reading {
		s.tombs[m.Seq] = max(m.Fence, m.Delivery)
	}
	s.set(m, over)
	s.setContent(m, nil, 0)
	m.Token = nil
	k := m.key
	k.all = slices.DeleteFunc(k.all, func(o *Message) bool { return o == m })
	s.uncount(m, now)
	s.clear(m)
}

// clear lets the next suspect go.
func (s *Sequencer) clear(m *Message) {
	if s.suspect == m {
		s.suspect = nil
		s.changed()
	}
}

// uncount says that a message is not at work.
func (s *Sequencer) uncount(m *Message, now time.Duration) {
	if !m.counted {
		return
	}
	m.counted = false
	sl := m.key.slot
	sl.atWork--
	for len(sl.blocked) > 0 && sl.atWork < sl.Most && now > 0 {
		next := sl.blocked[0]
		sl.blocked = sl.blocked[1:]
		if next.state == queued {
			s.set(next, unread)
			s.advance(next.key, now)
		}
	}
}

// hold closes a key until it is known that no dead message holds it.
func (s *Sequencer) hold(k *keyQueue, redriven int64) {
	if s.cfg.Holds && k.name.keyed {
		k.held, k.note = true, redriven
		s.holding[k] = true
	}
}

// forget takes a key out of memory, if nothing is known of it.
func (s *Sequencer) tidy(k *keyQueue) {
	if len(k.all) == 0 && !k.held && k.spill == None {
		s.forget(k)
	}
}

func (s *Sequencer) forget(k *keyQueue) {
	if k.slot.keys[k.name] == k {
		delete(k.slot.keys, k.name)
		s.keys--
	}
	delete(s.spilled, k)
	delete(s.holding, k)
}

// advance lists the first message of a key for what is next, if it may go.
func (s *Sequencer) advance(k *keyQueue, now time.Duration) {
	if len(k.all) == 0 {
		s.tidy(k)
		if k.spill < None {
			s.changed()
		}
		return
	}
	m, sl := k.all[0], k.slot
	if m.state != unread || k.busy > 0 || k.held || sl.closing || k.spill <= m.Seq || m.gate != nil && !m.gate.done {
		if !m.busy() && m.state == unread {
			s.clear(m)
		}
		return
	}
	if m.dueAt > now {
		s.set(m, waits)
		s.timer(m, min(m.dueAt, now+peekEvery<<m.peeks)) // another may end it
		m.peeks = min(m.peeks+1, mostPeeks)
		return
	}
	if !m.counted {
		if sl.Most > 0 && sl.atWork >= sl.Most {
			s.set(m, queued)
			sl.blocked = append(sl.blocked, m)
			return
		}
		m.counted = true
		sl.atWork++
	}
	if m.Suspect {
		if s.suspect == nil {
			s.suspect = m
		} else if s.suspect != m {
			s.set(m, queued)
			s.suspects = append(s.suspects, m)
			s.uncount(m, now)
			return
		}
	}
	switch {
	case m.unmarked() && !m.look:
		s.setContent(m, nil, 0)
		s.set(m, toMark)
		s.marks = append(s.marks, m)
	case m.Content == nil || m.look:
		s.set(m, wanted)
		s.wants = append(s.wants, m)
	default:
		s.set(m, ready)
		s.ready = append(s.ready, m)
	}
	s.changed()
}

// Next returns up to n messages for delivery. Each has its Delivery, and is out from here on. redelivered by
// Undelivered if no reader has seen it.
func (s *Sequencer) Next(list []*Message, n int) []*Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := 0
	for taken < len(s.ready) && len(list) < n {
		m := s.ready[taken]
		s.ready[taken] = nil
		taken++
		if m.state != ready || m.key.all[0] != m {
			continue
		}
		if m.key.held || m.key.slot.closing || m.key.busy > 0 {
			s.set(m, unread)
			s.clear(m)
			continue
		}
		s.set(m, out)
		m.Delivery, m.redriven, m.tx = DeliveryFence(m.Fence, m.key.slot.Fence), s.redriven, false
		list = append(list, m)
	}
	s.ready = s.ready[taken:]
	return list
}

// Delivered notes the token of a message that Next has returned. Its contents are in its lease.
func (s *Sequencer) Delivered(list []*Message, token func(i int) any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range list {
		if m.state == out {
			m.Token = token(i)
			s.setContent(m, nil, 0)
		}
	}
}

// Outcome is what became of a delivery.
type Outcome uint8

// The outcomes.
const (
	Acked Outcome = iota
	Dead
	Given   // back: due after a delay
	InTx    // acked in a transaction that has not ended, or not been seen to
	Unknown // or lost, or run out
)

// Settled says what became of the delivery that has this token.
func (s *Sequencer) Settled(m *Message, token any, o Outcome, delay, until, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Token != token || m.state != out && m.state != troubled && m.state != lapsing {
		return
	}
	k := m.key
	switch o {
	case Acked, Dead:
		if o == Dead && !k.held {
			s.hold(k, m.redriven)
		}
		s.end(m, now)
	case Given:
		s.again(m, delay, now)
	case InTx:
		if m.state == out && !m.tx {
			m.tx, m.until, m.pauses = true, until, 0
			s.timer(m, now+firstTxLook)
		}
		return
	case Unknown:
		if m.state == out {
			s.trouble(m, now)
		}
		return
	}
	s.advance(k, now)
	s.changed()
}

// again has a message delivered again, that was given back under a higher fence.
func (s *Sequencer) again(m *Message, delay, now time.Duration) {
	m.Fence = GivenFence(m.Fence, m.Delivery)
	m.Token, m.marked, m.others, m.Suspect, m.tx, m.pauses = nil, true, false, false, false, 0
	m.dueAt, m.peeks = now+delay, 0
	s.clear(m)
	if m.key.slot.closing {
		s.end(m, now)
		return
	}
	s.set(m, unread)
	s.uncount(m, now)
}

// trouble has a message asked about whose delivery has an unknown end.
func (s *Sequencer) trouble(m *Message, now time.Duration) {
	s.set(m, troubled)
	if m.key.slot.closing {
		m.key.slot.doubt = true
		s.end(m, now)
		s.changed()
		return
	}
	s.lapses = append(s.lapses, m)
	s.changed()
}

// Hurry has a message in a transaction looked at now.
func (s *Sequencer) Hurry(m *Message, token any, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Token == token && m.state == out && m.tx {
		m.pauses = 0
		s.looks = append(s.looks, m)
		s.changed()
	}
}

// Behind reports whether others wait for the end of a delivery.
func (s *Sequencer) Behind(m *Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.state == out && (len(m.key.all) > 1 || m.key.spill < None || len(m.key.slot.blocked) > 0 || m.Suspect && len(s.suspects) > 0)
}

// expire does what is due.
func (s *Sequencer) expire(now time.Duration) {
	for len(s.timers) > 0 && s.timers[0].at <= now {
		t := heap.Pop(&s.timers).(timer)
		m := t.m
		switch {
		case m.state == waits:
			s.setContent(m, nil, 0)
			m.look = true
			if m.dueAt > now {
				s.set(m, wanted)
				s.wants = append(s.wants, m)
				continue
			}
			s.set(m, unread)
			s.advance(m.key, now)
		case m.state == out && m.tx:
			s.looks = append(s.looks, m)
		case m.state == troubled && m.dueAt <= now:
			s.lapses = append(s.lapses, m)
		}
	}
	for s.suspect == nil && len(s.suspects) > 0 {
		m := s.suspects[0]
		s.suspects = s.suspects[1:]
		if m.state == queued {
			s.set(m, unread)
			s.advance(m.key, now)
		}
	}
}

// take returns up to n of a list that are in a state, in another from now on.
func (s *Sequencer) take(list *[]*Message, from, to state, n int, only func(*Message) bool) (taken []*Message) {
	keep := (*list)[:0]
	for _, m := range *list {
		switch {
		case m.state != from:
		case len(taken) == n || only != nil && !only(m):
			keep = append(keep, m)
		default:
			s.set(m, to)
			taken = append(taken, m)
		}
	}
	clear((*list)[len(keep):])
	*list = keep
	return taken
}

// Marks returns messages to be marked, either one suspect, or others.
func (s *Sequencer) Marks(n int, now time.Duration) (list []*Message, suspect bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	list = s.take(&s.marks, toMark, marking, 1, func(m *Message) bool { return m.Suspect })
	if len(list) > 0 {
		return list, true
	}
	return s.take(&s.marks, toMark, marking, n, nil), false
}

// Marked takes the answer to a mark. done says of each whether it was marked; nil: nobody knows.
func (s *Sequencer) Marked(list []*Message, done func(*Message) bool, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		if m.state != marking {
			continue
		}
		s.set(m, unread)
		if done != nil && done(m) {
			m.Fence, m.marked, m.others, m.pauses = MarkedFence(m.Fence, m.key.slot.Fence), true, false, 0
		} else {
			s.pause(m, now) // then it is looked at
			continue
		}
		if m.key.slot.closing {
			s.set(m, releasing)
			s.releases = append(s.releases, m)
			continue
		}
		s.advance(m.key, now)
	}
	s.changed()
}

// pause has a message looked at, later each time.
func (s *Sequencer) pause(m *Message, now time.Duration) {
	if m.key.slot.closing {
		if !m.marked {
			m.key.slot.doubt = true
		}
		s.end(m, now)
		return
	}
	s.uncount(m, now)
	s.clear(m)
	m.dueAt = now + firstPause<<m.pauses
	m.pauses = min(m.pauses+1, mostPauses)
	s.set(m, waits)
	s.timer(m, m.dueAt)
}

// Wants returns messages whose contents are to be read, or, with blind, such of which only the row is to be
// looked at, since they are to be marked before their contents are read.
func (s *Sequencer) Wants(n int, now time.Duration) (list []*Message, blind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	list = s.take(&s.wants, wanted, fetching, n, func(m *Message) bool { return !m.unmarked() && m.dueAt <= now })
	if len(list) > 0 {
		return list, false
	}
	return s.take(&s.wants, wanted, fetching, n, nil), true
}

// unmarked: another consumer may have delivered the message.
func (m *Message) unmarked() bool { return (m.Seq <= m.key.slot.Old || m.others) && !m.marked }

// SlotFence is the fence of the message's slot.
func (m *Message) SlotFence() int64 { return m.key.slot.Fence }

// Slot returns a slot that is owned.
func (s *Sequencer) Slot(number int) (Taken, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.slots[number]
	if sl == nil {
		return Taken{}, false
	}
	return sl.Taken, true
}

// Found takes the answer to a read of contents. rows has those that are there, by ID; walked false: nothing is known.
func (s *Sequencer) Found(list []*Message, st *Status, rows map[[16]byte]*Row, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.Walked {
		s.event(st, false, now)
	}
	for _, m := range list {
		if m.state != fetching {
			continue
		}
		k, row := m.key, rows[m.ID]
		s.set(m, unread)
		switch {
		case !st.Walked:
			s.pause(m, now)
			continue
		case row == nil || row.Seq != m.Seq:
			s.gone(m, st.Redriven, now)
		case row.Held && !k.held:
			s.hold(k, st.Redriven)
		case row.Fence != m.Fence:
			marked := m.marked && row.Holder == Mine
			if m.adopt(s, row, now); !marked {
				m.marked = row.Holder == Mine && row.Fence >= k.slot.Fence
			}
		default:
			m.adopt(s, row, now)
			m.pauses = 0
		}
		s.advance(k, now)
	}
	s.changed()
}

// gone ends a message that was ended by another: perhaps it is dead.
func (s *Sequencer) gone(m *Message, redriven int64, now time.Duration) {
	k := m.key
	if !k.held {
		s.hold(k, redriven)
		s.heldAt = 0
	}
	s.end(m, now)
}

// Lapses returns messages whose deliveries have an unknown end: they are to be given back, with one more lapse.
func (s *Sequencer) Lapses(n int, now time.Duration) []*Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	return s.take(&s.lapses, troubled, lapsing, n, nil)
}

// Lapsed takes the answer to that: fence returns of each what was written, or found: the fence that its row has
// now; -1: no such row; -2: nobody knows.
func (s *Sequencer) Lapsed(list []*Message, fence func(*Message) int64, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		if m.state != lapsing {
			continue
		}
		k := m.key
		switch f := fence(m); {
		case f == -1:
			s.gone(m, m.redriven, now)
		case f == -2, f == m.Fence:
			s.set(m, troubled)
			if k.slot.closing {
				k.slot.doubt = true
				s.end(m, now)
				continue
			}
			m.dueAt = now + firstPause<<m.pauses
			m.pauses = min(m.pauses+1, mostPauses)
			s.timer(m, m.dueAt)
			continue
		default:
			s.again(m, 0, now)
			if m.state != over {
				m.Fence = f
			}
		}
		s.advance(k, now)
	}
	s.changed()
}

// Releases returns messages of slots that are given back, to be released.
func (s *Sequencer) Releases() (list []*Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.releases = s.releases, nil
	return slices.DeleteFunc(list, func(m *Message) bool { return m.state != releasing })
}

// Released takes the answer to that.
func (s *Sequencer) Released(list []*Message, done func(*Message) bool, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		if m.state == releasing {
			if done == nil || !done(m) {
				m.key.slot.doubt = true
			}
			k := m.key
			s.end(m, now)
			s.tidy(k)
		}
	}
	s.changed()
}

// Looks returns messages that were acked in a transaction, whose rows are to be looked at.
func (s *Sequencer) Looks(n int, now time.Duration) (list []*Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	for _, m := range s.looks {
		if m.state == out && m.tx && len(list) < n && !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	s.looks = nil
	return list
}

// Looked takes the fences of their rows; -1: no such row; -2: nobody knows.
func (s *Sequencer) Looked(list []*Message, fence func(*Message) int64, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		if m.state != out || !m.tx {
			continue
		}
		k := m.key
		switch f := fence(m); {
		case f == -1:
			s.end(m, now)
			s.advance(k, now)
		case f != -2 && (f != m.Fence || now >= m.until):
			s.trouble(m, now)
		default:
			s.timer(m, now+firstTxLook<<m.pauses)
			m.pauses = min(m.pauses+1, mostTxPauses)
		}
	}
	s.changed()
}

// HeldKeys returns keys of which it is to be asked whether dead messages hold them.
func (s *Sequencer) HeldKeys(n int, now time.Duration) (slots []int, keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holding) == 0 || now < s.heldAt {
		return nil, nil
	}
	s.heldAt = now + heldEvery
	for k := range s.holding {
		if k.busy == 0 && len(keys) < n {
			slots, keys = append(slots, k.slot.Slot), append(keys, k.name.name)
		}
	}
	return slots, keys
}

// Holds takes the answer.
func (s *Sequencer) Holds(slots []int, keys []string, held []bool, redriven int64, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isNew := !s.knows || redriven != s.redriven
	s.event(&Status{Walked: true, Redriven: redriven}, false, now)
	asked := map[*group]bool{}
	for i, name := range keys {
		sl := s.slots[slots[i]]
		if sl == nil || sl.closing {
			continue
		}
		k := sl.keys[keyName{slots[i], name, true}]
		if k == nil || !k.held || k.busy > 0 {
			continue
		}
		g := sl.group
		switch {
		case held[i] && len(k.all) == 0 && k.spill == None && redriven == k.note && !s.reading:
			s.forget(k) // rows that are read from now on say that it is held
		case held[i]:
		case redriven == k.note && g.pend == nil:
			k.held = false
			delete(s.holding, k)
			s.advance(k, now)
		case redriven != k.note:
			k.note = redriven
			if !isNew && !asked[g] {
				s.catchUp(g, 0, false)
				asked[g] = true
			}
		}
	}
	s.changed()
}

// Due is when something is to be done, at the latest.
func (s *Sequencer) Due(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Duration(math.MaxInt64)
	if len(s.timers) > 0 {
		at = s.timers[0].at
	}
	if len(s.holding) > 0 {
		at = min(at, s.heldAt)
	}
	for _, g := range s.groups {
		at = min(at, g.slowAt)
		if !g.read {
			at = now
		}
		if g.pend != nil {
			at = min(at, g.catchAt)
		}
	}
	if len(s.marks)+len(s.wants)+len(s.lapses)+len(s.releases)+len(s.looks) > 0 || s.suspect == nil && len(s.suspects) > 0 {
		at = now
	}
	return at
}

// Full reports whether the last read of some slots did not come to its end.
func (s *Sequencer) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.groups, func(g *group) bool { return g.full })
}

// Counts are what is in memory.
type Counts struct {
	Ready, Waiting, Slots, Spilled, Blocked int
	Cursor, Safe                            int64
}

// Counts returns what is in memory.
func (s *Sequencer) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Counts{Ready: s.nReady, Waiting: max(0, s.unread-s.nReady), Slots: len(s.slots), Spilled: len(s.spilled), Blocked: s.blocked()}
	for _, g := range s.groups {
		c.Cursor, c.Safe = max(c.Cursor, g.cursor), max(c.Safe, g.safe)
	}
	return c
}

// timers is a heap.
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
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}

func (s *Sequencer) timer(m *Message, at time.Duration) { heap.Push(&s.timers, timer{at, m}) }

// Senders splits a list of senders.
func Senders(text, unknown string) (names []string, renamed bool) {
	for _, name := range strings.Fields(text) {
		if name == unknown {
			renamed = true
		}
		names = append(names, name)
	}
	return names, renamed
}
