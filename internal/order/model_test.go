package order

import (
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// The model has senders that commit late and keep their locks longer, consumers that take, return and lose slots, crash
// and restart, statements whose answers are late or lost, settles that are applied late, transactions of handlers, an
// operator who redrives, discards and cancels, and a message that ends its process. Each delivery is checked against
// the rows.

type simConsumer struct {
	n        int
	consumer int // 0: none
	seq      *Sequencer
	own      map[int]int64
	task     *simTask
	out      []Delivery
}

type sim struct {
	choose       func(n int) int
	fault        fault
	holds        bool
	oneWriter    bool
	blocks       bool // a read waits for locked rows, and fails
	looksAtLocks bool
	maxKeys      int
	calm         bool
	now          time.Duration
	rows         []*simRow
	drawn        int64
	redriven     int64
	slots        [simSlots]simSlot
	alive        map[int]bool
	joined       int // IDs so far
	consumers    []*simConsumer
	late         []*simTask // running, but no consumer waits for them
	ops          []*simOp
	log          []string
}

// violation is a fault that a walk found.
type violation string

func (s *sim) fail(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }
func (s *sim) say(format string, args ...any)  { s.log = append(s.log, fmt.Sprintf(format, args...)) }
func (s *sim) pick(n int) int                  { return s.choose(n) }
func (s *sim) chance(n int) bool               { return s.pick(n) == 0 }

func (c *simConsumer) start(s *sim) {
	c.seq = New(Config{
		Unread: 2, Blocked: 100, Bytes: 4, Behind: simBehind, Holds: s.holds,
		Traits:     sqlbatch.Traits{ClaimRows: 3, OneWriter: s.oneWriter},
		MaxCrashes: simCrashes,
	})
	c.own, c.out = map[int]int64{}, nil
}

// lose ends a membership: in the database and, by the local clock, in the process.
func (s *sim) lose(c *simConsumer, crash bool) {
	s.say("c%d loses its membership, crash %v", c.n, crash)
	for _, r := range s.rows {
		if r.alive() && r.by == c.consumer {
			r.guilt++
		}
	}
	delete(s.alive, c.consumer)
	if s.fault == noDeadline && !crash {
		return
	}
	c.consumer = 0
	if crash {
		if c.task != nil {
			s.late = append(s.late, c.task)
		}
		c.task = nil
		c.start(s)
	} else {
		c.seq.lose(s.now)
	}
	c.own, c.out = map[int]int64{}, nil
}

func (s *sim) join(c *simConsumer) {
	s.joined++
	c.consumer = s.joined
	s.alive[c.consumer] = true
}

func (s *sim) take(c *simConsumer) {
	var taken []Slot
	for i := range s.slots {
		z := &s.slots[i]
		if z.owner != 0 && s.alive[z.owner] && (z.owner != c.consumer || z.fence == c.own[i]) || !s.calm &&
			s.chance(3) {
			continue
		}
		if z.owner != 0 && s.fault != forgetOld {
			z.old = s.drawn
		}
		z.owner, z.fence = c.consumer, z.fence+100
		s.say("c%d takes slot %d: fence %d, old %d", c.n, i, z.fence, z.old)
		if !s.calm && s.chance(12) {
			s.say("the answer is lost")
			continue
		}
		c.own[i] = z.fence
		taken = append(taken, Slot{Number: i, Fence: z.fence, Old: z.old, Keys: s.maxKeys})
	}
	if len(taken) > 0 {
		c.seq.Take(taken, s.now)
	}
}

// giveSlots returns the slots that may be returned.
func (s *sim) giveSlots(c *simConsumer) {
	for _, r := range c.seq.returned() {
		z, doubt := &s.slots[r.Number], c.seq.Doubt(r.Number)
		if z.owner == c.consumer && z.fence == r.Fence {
			if z.owner = 0; doubt && s.fault != cleanReturn {
				z.old = s.drawn
			}
		}
		s.say("c%d returns slot %d, doubt %v", c.n, r.Number, doubt)
		c.seq.Drop(r.Number, s.now)
		delete(c.own, r.Number)
	}
}

// returned returns the slots that may be returned now.
func (s *Sequencer) returned() (list []Slot) {
	for number, sl := range s.queues.slots {
		if sl.walk == nil && s.Busy(number) == 0 {
			list = append(list, sl.Slot)
		}
	}
	return list
}

// lose drops all slots.
func (s *Sequencer) lose(now time.Duration) {
	for number := range s.queues.slots {
		s.Drop(number, now)
	}
}

func (s *sim) deliver(c *simConsumer) {
	for _, d := range c.seq.Deliver(1, s.now) {
		r := s.rows[d.ID[0]-1]
		s.say("c%d DELIVERS m%d of key %d, number %d, fence %d as %d, crashed %v",
			c.n, r.n, r.key, d.Seq, d.Message.Fence, d.Fence, d.Crashed)
		for _, b := range r.before {
			if b.alive() && (s.holds || !b.died) || b.dead && s.holds {
				s.fail("m%d is delivered before m%d", r.n, b.n)
			}
		}
		for _, o := range s.consumers {
			if slices.ContainsFunc(o.out, func(x Delivery) bool { return x.ID == d.ID }) {
				s.fail("m%d is delivered twice at the same time", r.n)
			}
		}
		if !(r.alive() && r.fence == d.Message.Fence) && !r.cancelled {
			s.fail("m%d is delivered with fence %d, and is %+v", r.n, d.Message.Fence, *r)
		}
		if r.alive() {
			if d.Fence <= r.delivered {
				s.fail("m%d is delivered with fence %d after %d", r.n, d.Fence, r.delivered)
			}
			if r.delivered = d.Fence; !d.Crashed { // a dead letter of an earlier owner has the same effect
				r.deliveries++
			}
			switch {
			case d.Crashed && r.guilt < simCrashes:
				s.fail("m%d is dead-lettered, but its holder ended %d times", r.n, r.guilt)
			case !d.Crashed && r.lapses > 0 && r.by != c.consumer:
				s.fail("m%d has lost a lease, and is delivered without a mark", r.n)
			}
		}
		for _, o := range c.out {
			switch {
			case s.rows[o.ID[0]-1].key == r.key:
				s.fail("two messages of key %d are out", r.key)
			case s.maxKeys > 0 && o.Slot == d.Slot:
				s.fail("two keys of slot %d are at work, but only one may be", d.Slot)
			}
		}
		c.out = append(c.out, d)
		switch {
		case d.Crashed:
			s.settle(c, d, "dead")
		case d.Contents == nil:
			s.fail("m%d is delivered without contents", r.n)
		}
		if r.poison && r.alive() && !d.Crashed && (s.calm || s.chance(2)) {
			s.lose(c, true)
			return
		}
	}
}

// progress advances the statement of a consumer by one step.
func (s *sim) progress(c *simConsumer) {
	st := c.task
	switch {
	case !st.applied && !s.calm && s.chance(12): // it goes on running, or it is lost
		s.say("c%d gives up waiting for its task %d", c.n, st.task.Kind)
		c.task = nil
		if s.chance(2) {
			s.late = append(s.late, st)
		}
		s.unknown(c, st)
	case !st.applied:
		s.apply(st)
	case st.blocked:
		s.say("c%d's task %d from %d is blocked", c.n, st.task.Kind, st.task.From)
		c.task = nil
		if st.consumer == c.consumer {
			c.seq.Blocked(st.task)
		}
		c.seq.Answer(st.task, nil, s.now)
	case st.task.Kind <= Refill && !st.sampled:
		s.sample(st)
	case !s.calm && s.chance(12):
		s.say("the answer to c%d's task %d is lost", c.n, st.task.Kind)
		c.task = nil
		s.unknown(c, st)
	default:
		c.task = nil
		if st.consumer != c.consumer {
			s.unknown(c, st)
			return
		}
		a := st.answer
		var seqs []int64
		for _, r := range a.Rows {
			seqs = append(seqs, r.Seq)
		}
		s.say("c%d gets the answer to %d from %d, cursor %d, upto %d: %v, walked %v",
			c.n, st.task.Kind, st.task.From, st.task.Cursor, st.task.Upto, seqs, a.Walked)
		if c.seq.Answer(st.task, a, s.now) {
			s.fail("numbers were forgotten")
		}
		for _, w := range c.seq.reads.walks {
			if w.safe > w.cursor {
				s.fail("the watermark %d is above the cursor %d", w.safe, w.cursor)
			}
		}
	}
}

func (s *sim) unknown(c *simConsumer, st *simTask) {
	c.seq.Answer(st.task, nil, s.now)
	if st.task.Kind <= Refill {
		c.seq.Reread()
	}
}

func (s *sim) some(that func(*simRow) bool) *simRow {
	var all []*simRow
	for _, r := range s.rows {
		if that(r) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[s.pick(len(all))]
}

// send advances one sender.
func (s *sim) send() {
	if !s.calm && len(s.rows) < simRows && s.chance(3) {
		r := &simRow{n: len(s.rows) + 1, key: s.pick(simKeys), poison: s.chance(8)}
		for _, o := range s.rows {
			if o.key == r.key && o.released && o.visible {
				r.before = append(r.before, o)
			}
		}
		if s.rows = append(s.rows, r); s.oneWriter {
			s.drawn++
			r.seq, r.visible, r.released = s.drawn, true, true
		}
		return
	}
	r := s.some(func(r *simRow) bool { return !r.released })
	switch {
	case r == nil:
	case r.seq == 0:
		s.drawn++
		r.seq = s.drawn
	case !r.visible && !s.calm && s.chance(10):
		r.gone, r.released = true, true
	case !r.visible:
		r.visible = true
		s.say("m%d of key %d commits, number %d", r.n, r.key, r.seq)
	default:
		r.released = true
	}
}

func (s *sim) redrive(r *simRow) {
	r.dead, r.by, r.lapses, r.guilt = false, 0, 0, 0
	r.fence++
	if s.fault != uncountedRedrive {
		s.redriven++
	}
	s.say("m%d is redriven: fence %d", r.n, r.fence)
}

func (s *sim) operate() {
	switch s.pick(4) {
	case 0:
		if r := s.some(func(r *simRow) bool { return r.alive() && r.released && !r.locked }); r != nil && s.chance(4) {
			r.gone, r.cancelled = true, true
			s.say("m%d is cancelled", r.n)
		}
	case 1:
		if r := s.some(func(r *simRow) bool { return r.dead }); r != nil {
			s.redrive(r)
		}
	case 2:
		if r := s.some(func(r *simRow) bool { return r.dead }); r != nil && s.chance(3) {
			r.dead, r.gone = false, true
		}
	case 3:
		if r := s.some(func(r *simRow) bool { return r.locked }); r != nil {
			r.locked = false
			r.gone = s.chance(2)
			s.say("the transaction of m%d ends, committed %v", r.n, r.gone)
		}
	}
}

func (s *sim) consume(c *simConsumer) {
	if c.consumer == 0 {
		s.join(c)
		return
	}
	switch s.pick(9) {
	case 0:
		s.take(c)
	case 1, 2, 3, 4:
		if c.task != nil {
			s.progress(c)
			break
		}
		s.narrow(c)
		if t := c.seq.Plan(Budget{Room: 1 + s.pick(10), Items: 10, Fetch: 10, Poll: true}, s.now); t != nil {
			c.task = s.begin(c, t)
		}
	case 5:
		s.deliver(c)
	case 6:
		if len(c.out) > 0 {
			s.settle(c, c.out[s.pick(len(c.out))], []string{"ack", "ack", "nack", "release", "dead", "tx"}[s.pick(6)])
		}
	case 7:
		s.giveSlots(c)
		if n := s.pick(simSlots); c.own[n] != 0 && s.chance(5) {
			s.say("c%d begins to return slot %d", c.n, n)
			c.seq.Return(n, s.now)
		}
	case 8:
		if s.chance(15) {
			s.lose(c, s.chance(2))
		}
	}
}

// narrow makes the next reads of a consumer end after a few numbers, as if earlier reads had taken long.
func (s *sim) narrow(c *simConsumer) {
	for _, w := range c.seq.reads.walks {
		if !s.oneWriter && s.chance(3) {
			w.span = int64(1 + s.pick(4))
		}
	}
}

func (s *sim) step() {
	switch s.pick(9) {
	case 0, 1:
		s.send()
	case 2:
		s.operate()
	case 3:
		s.now += time.Duration(1+s.pick(300)) * time.Millisecond
		if s.chance(4) {
			s.now += time.Second
		}
	case 4:
		if len(s.late) > 0 && s.chance(3) {
			i := s.pick(len(s.late))
			st := s.late[i]
			if s.late = slices.Delete(s.late, i, i+1); !st.applied {
				s.say("late:")
				s.apply(st)
			}
			return
		}
		if len(s.ops) == 0 {
			return
		}
		i := s.pick(len(s.ops))
		switch op := s.ops[i]; {
		case !op.applied && !op.abandoned && s.chance(8):
			op.abandoned = true
			s.hear(op, true)
		case !op.applied:
			s.applySettle(op)
		default:
			s.ops = slices.Delete(s.ops, i, i+1)
			if !op.abandoned {
				s.hear(op, s.chance(10))
			}
		}
	default:
		s.consume(s.consumers[s.pick(len(s.consumers))])
	}
}
