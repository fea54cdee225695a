// Package scatter simulates what happens to innocent messages together with those that kill their processes. It is a model of the rule of
// guarantee 7, not of the code:
//
//   - Each message that a process held when it died, or was paused for longer than its lease, has lost a lease. A settle clears the count.
//   - From the second one in a row on, the message is due again after a random time in [0, 1 min × 2^(n-2)], at most 1 h.
//   - With MaxCrashes of them in a row it is dead-lettered.
//   - If the first message that can be claimed has lost a lease, as a look once a second finds, the next claim is for as many messages as the
//     process has settled or holds: for one at first. After a claim that brought a message which has lost a lease, the consumer claims more
//     only after a settle, or when its readers have waited for 30 s, as long as a lease lasts here.
//
// go test ./prove/scatter makes some hundred runs of each scene, and CHANQ_TEST=long go test -v ./prove/scatter 10,000 of most. Each has a seed
// of its own, which a failure names.
package scatter

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// Rule is the rule that is simulated.
type Rule struct {
	MaxCrashes int
	Scatter    bool // messages that lost two leases in a row are due later
	Careful    bool // claims are careful with messages that have lost a lease
}

// Default is the rule of guarantee 7.
var Default = Rule{MaxCrashes: 8, Scatter: true, Careful: true}

const (
	lease     = 30 * time.Second // ConsumerConfig.LeaseFor
	maxExtend = time.Hour        // ConsumerConfig.MaxExtend
	looks     = time.Second      // between two looks of a consumer for expired leases
)

// delay returns how long a message waits after its nth expired lease in a row.
func (r Rule) delay(n int, rng *rand.Rand) time.Duration {
	if !r.Scatter || n < 2 {
		return 0
	}
	most := min(time.Minute<<min(n-2, 10), time.Hour)
	return time.Duration(rng.Int64N(int64(most)))
}

// Setting is what happens in a simulation.
type Setting struct {
	Processes, Workers int
	Prefetch           int           // most messages that wait in a process
	Innocents, Poisons int           // messages
	Every              time.Duration // between two messages; 0: all are there at the beginning
	Job                time.Duration // of a handler
	LifeFor            time.Duration // processes die by themselves after this time; 0: only poison messages kill them
	Restart            time.Duration // until a process that died is replaced
	PauseEvery         time.Duration // average time between two pauses of a process; 0: none
	Stuck              bool          // from a moment in the first minute on, the readers of one process take nothing
	For                time.Duration // the simulation ends; 0: when all messages have
}

// Result is how a simulation ended.
type Result struct {
	Acked, Killed int // innocent messages: acked, and dead-lettered
	Poisons       int // poison messages that are dead-lettered
	Deaths        int // of processes
	Took          time.Duration
}

// Simulate runs one simulation.
func Simulate(r Rule, set Setting, rng *rand.Rand) Result {
	s := &simulation{rule: r, set: set, rng: rng}
	order := rng.Perm(set.Innocents + set.Poisons)
	for i, n := range order {
		m := &message{number: i, poison: n < set.Poisons}
		s.at(time.Duration(i)*set.Every, func() { s.free(m, s.now) })
	}
	s.lives = make([]*life, set.Processes)
	for p := range s.lives {
		s.at(time.Duration(rng.Int64N(int64(time.Second+set.LifeFor))), func() { s.start(p) })
	}
	if set.Stuck {
		s.at(time.Duration(rng.Int64N(int64(time.Minute))), func() { s.stick(s.lives[0]) })
	}
	for len(s.events) > 0 && s.ended < len(order) && (set.For == 0 || s.now < set.For) {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	s.result.Took = s.now
	return s.result
}

type simulation struct {
	rule   Rule
	set    Setting
	rng    *rand.Rand
	now    time.Duration
	events events
	drawn  int        // events so far
	ready  []*message // by due time and number
	lives  []*life    // by process
	lost   []func()   // rescues that wait for a process
	ended  int
	result Result
}

type message struct {
	number int
	poison bool
	due    time.Duration
	lapses int
	holder *life
	lease  int // how often it was leased
}

// life is a process from its start to its death.
type life struct {
	dead   bool
	held   []*message
	buffer []*message // the part of held that no reader has taken
	busy   int
	paused time.Duration // until then
	stuck  bool

	// See Rule.Careful.
	looked  time.Duration // the time of the last look
	settled int           // messages
	waits   bool
	hungry  time.Duration // since then readers wait
}

func (s *simulation) at(t time.Duration, do func()) {
	s.drawn++
	heap.Push(&s.events, event{t, s.drawn, do})
}

// about returns a random time with the given average.
func (s *simulation) about(mean time.Duration) time.Duration {
	return time.Duration(s.rng.ExpFloat64() * float64(mean))
}

// start starts a process.
func (s *simulation) start(p int) {
	l := &life{looked: -looks}
	s.lives[p] = l
	if s.set.LifeFor > 0 {
		s.at(s.now+s.set.LifeFor, func() { s.die(l) })
	}
	if s.set.PauseEvery > 0 {
		s.at(s.now+s.about(s.set.PauseEvery), func() { s.pause(l) })
	}
	s.look(l)
}

// look makes the rescues that wait for a process, and a claim.
func (s *simulation) look(l *life) {
	if l.dead || l.paused > s.now {
		return
	}
	lost := s.lost
	s.lost = nil
	for _, rescue := range lost {
		rescue()
	}
	s.claim(l)
}

// die ends a process. Another one replaces it.
func (s *simulation) die(l *life) {
	switch {
	case l.dead:
		return
	case l.paused > s.now:
		s.at(l.paused, func() { s.die(l) })
		return
	}
	l.dead = true
	s.result.Deaths++
	s.expire(l)
	p := slices.Index(s.lives, l)
	s.at(s.now+s.set.Restart, func() { s.start(p) })
}

// pause stops a process for a time in which leases might end.
func (s *simulation) pause(l *life) {
	if l.dead {
		return
	}
	l.paused = s.now + time.Duration(s.rng.Int64N(int64(4*lease)))
	s.expire(l)
	s.at(l.paused, func() { s.look(l) })
	s.at(l.paused+s.about(s.set.PauseEvery), func() { s.pause(l) })
}

// stick makes the readers of a process take nothing any more. What waits for them is released after maxExtend, and the process claims no
// more.
func (s *simulation) stick(l *life) {
	if l == nil || l.dead {
		return
	}
	l.stuck = true
	s.at(s.now+maxExtend, func() {
		for _, m := range slices.Clone(l.buffer) {
			s.drop(l, m)
			s.free(m, m.due)
		}
	})
}

// expire lets the leases of a process end: they are not extended from now on.
func (s *simulation) expire(l *life) {
	held := slices.Clone(l.held)
	leases := make([]int, len(held))
	for i, m := range held {
		leases[i] = m.lease
	}
	ends := s.now + lease - time.Duration(s.rng.Int64N(int64(lease/3)))
	s.at(ends+time.Duration(s.rng.Int64N(int64(looks))), func() {
		if l.paused <= s.now && !l.dead {
			return // it continued in time
		}
		s.rescue(func() {
			for i, m := range held {
				if m.holder == l && m.lease == leases[i] {
					s.drop(l, m)
					s.lapse(m)
				}
			}
		})
	})
}

// rescue calls do, as soon as a process is there that can.
func (s *simulation) rescue(do func()) {
	for _, l := range s.lives {
		if l != nil && !l.dead && l.paused <= s.now {
			do()
			return
		}
	}
	s.lost = append(s.lost, do)
}

// lapse counts an expired lease.
func (s *simulation) lapse(m *message) {
	if m.lapses++; m.lapses >= s.rule.MaxCrashes {
		s.ended++
		if m.poison {
			s.result.Poisons++
		} else {
			s.result.Killed++
		}
		return
	}
	due := m.due
	if m.lapses >= 2 {
		due = s.now + s.rule.delay(m.lapses, s.rng)
	}
	s.free(m, due)
}

// free makes a message ready at a time.
func (s *simulation) free(m *message, due time.Duration) {
	m.due = due
	i, _ := slices.BinarySearchFunc(s.ready, m, byPlace)
	s.ready = slices.Insert(s.ready, i, m)
	s.at(max(s.now, due), func() {
		for _, p := range s.rng.Perm(len(s.lives)) {
			s.claim(s.lives[p])
		}
	})
}

func byPlace(a, b *message) int {
	if a.due != b.due {
		return int(a.due - b.due)
	}
	return a.number - b.number
}

// drop removes a message from those that a process holds.
func (s *simulation) drop(l *life, m *message) {
	m.holder = nil
	is := func(o *message) bool { return o == m }
	l.held = slices.DeleteFunc(l.held, is)
	l.buffer = slices.DeleteFunc(l.buffer, is)
}

// claim leases messages for a process.
func (s *simulation) claim(l *life) {
	if l == nil || l.dead || l.paused > s.now || l.stuck && s.now > maxExtend {
		return
	}
	if 2*len(l.buffer) > s.set.Prefetch {
		return
	}
	room := s.set.Prefetch - len(l.buffer)
	if s.rule.Careful {
		if l.waits && len(l.buffer) > 0 {
			return
		}
		if l.waits && s.now < l.hungry+lease {
			s.at(l.hungry+lease, func() { s.claim(l) })
			return
		}
		if s.now >= l.looked+looks {
			l.looked = s.now
			if len(s.ready) > 0 && s.ready[0].lapses > 0 {
				room = min(room, max(1, l.settled+len(l.held)))
			}
		}
	}
	n := 0
	for n < min(room, len(s.ready)) && s.ready[n].due <= s.now {
		n++
	}
	if n == 0 {
		return
	}
	got := slices.Clone(s.ready[:n])
	s.ready = slices.Delete(s.ready, 0, n)
	l.waits = false
	for _, m := range got {
		m.holder = l
		m.lease++
		l.waits = l.waits || m.lapses > 0
	}
	l.held = append(l.held, got...)
	l.buffer = append(l.buffer, got...)
	s.work(l)
	s.claim(l)
}

// work starts handlers.
func (s *simulation) work(l *life) {
	for !l.dead && l.paused <= s.now && !l.stuck && l.busy < s.set.Workers && len(l.buffer) > 0 {
		m := l.buffer[0]
		l.buffer = l.buffer[1:]
		l.busy++
		if m.poison {
			s.at(s.now+time.Duration(s.rng.Int64N(int64(max(s.set.Job, time.Second)))), func() { s.die(l) })
			continue
		}
		lease := m.lease
		s.at(s.now+s.set.Job, func() { s.done(l, m, lease) })
	}
	if len(l.buffer) == 0 {
		l.hungry = s.now
	}
}

// done ends a handler.
func (s *simulation) done(l *life, m *message, lease int) {
	switch {
	case l.dead:
		return
	case l.paused > s.now:
		s.at(l.paused, func() { s.done(l, m, lease) })
		return
	}
	l.busy--
	if m.holder == l && m.lease == lease {
		s.drop(l, m)
		s.ended++
		s.result.Acked++
		l.settled++
		l.waits = false
	}
	s.work(l)
	s.claim(l)
}

type event struct {
	at     time.Duration
	number int
	do     func()
}

type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *events) Push(e any)   { *h = append(*h, e.(event)) }
func (h *events) Pop() any {
	e := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return e
}
