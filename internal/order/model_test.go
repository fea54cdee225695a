package order

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The model: a database of rows, senders that draw a number, commit late and release their lock later, two
// consumers that take slots, lose their membership, and return slots, reads whose answers are late or never come,
// marks and settles that are applied late or whose outcome is not heard, transactions of callers, and an
// operator who cancels, redrives and discards. What is delivered is judged by the rows.

const (
	simSlots = 2
	simKeys  = 3
)

type simRow struct {
	n                           int // from 1 on
	key                         int
	seq, fence                  int64
	drawn, visible, released    bool // of the sender
	dead, gone, cancelled, sent bool
	by                          int // the consumer that has marked it, 0: nobody
	locked                      bool
	died                        bool // once
	before                      []*simRow
	delivered                   int64 // fence of the last delivery
	deliveries                  int
}

func (r *simRow) slot() int      { return r.key % simSlots }
func (r *simRow) alive() bool    { return r.visible && !r.dead && !r.gone }
func (r *simRow) id() [16]byte   { return [16]byte{byte(r.n)} }
func (r *simRow) key_() string   { return fmt.Sprint("k", r.key) }
func (r *simRow) sender() string { return fmt.Sprint("s", r.n) }
func (r *simRow) isOpen() bool   { return r.sent && !r.released }

type simSlot struct {
	owner int // the member, 0: nobody
	fence int64
	old   int64
}

type simRead struct {
	plan    *Read
	rows    []Row
	status  Status
	snapped bool
	sampled bool
	member  int
}

type simOp struct {
	c          *simConsumer
	m          *Message
	token      any
	row        *simRow
	seq        int64
	fence      int64
	delivery   int64
	how        string
	applied    bool
	hit        bool
	forgot     bool // the consumer does not wait for it
	deliveries int
}

type simConsumer struct {
	n      int
	member int // 0: none
	seq    *Sequencer
	own    map[int]bool
	read   *simRead
	out    []*Message // with handlers
	tokens int
}

type sim struct {
	t         *rapid.T
	holds     bool
	now       time.Duration
	rows      []*simRow
	drawn     int64
	redriven  int64
	slots     [simSlots]simSlot
	alive     map[int]bool // members
	members   int
	consumers []*simConsumer
	ops       []*simOp
	calm      bool
	log       []string
}

func (s *sim) pick(n int, what string) int    { return rapid.IntRange(0, n-1).Draw(s.t, what) }
func (s *sim) chance(n int, what string) bool { return s.pick(n, what) == 0 }
func (s *sim) say(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

func (s *sim) fail(format string, args ...any) {
	for _, line := range s.log {
		s.t.Log(line)
	}
	s.t.Fatalf(format, args...)
}

func (s *sim) byID(id [16]byte) *simRow { return s.rows[id[0]-1] }

func (c *simConsumer) fresh(s *sim) {
	c.seq = New(Config{Unread: 2, Blocked: 100, Bytes: 1 << 20, Behind: 50, Holds: s.holds, Rows: 3}, func() {})
	c.own, c.out, c.read = map[int]bool{}, nil, nil
}

// lose ends the membership, by the process's view and the database's.
func (s *sim) lose(c *simConsumer, crash bool) {
	s.say("c%d loses its membership, crash %v", c.n, crash)
	delete(s.alive, c.member)
	c.member = 0
	for slot := range c.own {
		c.seq.Drop(slot)
	}
	c.own, c.out = map[int]bool{}, nil
	if crash {
		c.fresh(s)
	}
}

func (s *sim) take(c *simConsumer) {
	var taken []Taken
	for i := range s.slots {
		z := &s.slots[i]
		free := z.owner == 0 || !s.alive[z.owner] || z.owner == c.member && !c.own[i]
		if !free || len(s.consumers) > 1 && s.chance(3, "leave") {
			continue
		}
		if z.owner != 0 {
			z.old = s.drawn
		}
		z.owner, z.fence = c.member, z.fence+100
		c.own[i] = true
		taken = append(taken, Taken{Slot: i, Fence: z.fence, Old: z.old})
		s.say("c%d takes slot %d, fence %d, old %d", c.n, i, z.fence, z.old)
	}
	if len(taken) > 0 {
		c.seq.Open(taken, s.now)
	}
}

func (s *sim) give(c *simConsumer) {
	for _, slot := range c.seq.Drained() {
		z := &s.slots[slot]
		if z.owner == c.member {
			z.owner = 0
			if c.seq.Doubts(slot) {
				z.old = s.drawn
			}
		}
		s.say("c%d gives slot %d, old %d", c.n, slot, z.old)
		c.seq.Drop(slot)
		delete(c.own, slot)
	}
}

func (s *sim) row(r *simRow, c *simConsumer, content bool) Row {
	row := Row{ID: r.id(), Seq: r.seq, Slot: r.slot(), Key: r.key_(), Keyed: true, Fence: r.fence}
	switch r.by {
	case 0:
	case c.member:
		row.Holder = Mine
	default:
		row.Holder = Others
	}
	if s.holds {
		row.Held = slices.ContainsFunc(s.rows, func(o *simRow) bool { return o.key == r.key && o.dead })
	}
	if content {
		row.Content, row.Bytes = r, 1
	}
	return row
}

func (s *sim) walked(c *simConsumer, slots []Taken) bool {
	for _, t := range slots {
		if z := s.slots[t.Slot]; z.owner != c.member || z.fence != t.Fence || !s.alive[c.member] {
			return false
		}
	}
	return true
}

func (s *sim) bySeq() []*simRow {
	all := slices.DeleteFunc(slices.Clone(s.rows), func(r *simRow) bool { return !r.alive() })
	slices.SortFunc(all, func(a, b *simRow) int { return int(a.seq - b.seq) })
	return all
}

// snap is the snapshot of a read.
func (s *sim) snap(c *simConsumer) {
	r := c.read
	p := r.plan
	r.snapped = true
	r.status = Status{Walked: s.walked(c, p.Slots), Redriven: s.redriven, Upto: None}
	if !r.status.Walked {
		return
	}
	mine := map[int]bool{}
	for _, t := range p.Slots {
		mine[t.Slot] = true
	}
	n := 0
	for _, row := range s.bySeq() {
		if !mine[row.slot()] || row.seq <= p.From || row.seq > p.Upto || p.Kind == Refill && !slices.Contains(p.Keys, row.key_()) {
			continue
		}
		if p.Kind == Main && row.seq <= p.Cursor {
			r.rows = append(r.rows, s.row(row, c, false))
			continue
		}
		if n == p.Rows {
			break
		}
		n++
		r.rows = append(r.rows, s.row(row, c, p.Kind != CatchUp && row.seq > p.Old && (p.Kind == Refill || !slices.Contains(p.Keys, row.key_()))))
		if p.Kind == Refill && n == p.Rows {
			r.status.Upto = row.seq
		}
	}
}

func (s *sim) sample(c *simConsumer) {
	r := c.read
	r.sampled = true
	r.status.Drawn = s.drawn
	for _, row := range s.rows {
		if row.isOpen() {
			r.status.Senders = append(r.status.Senders, row.sender())
		}
	}
}

func (s *sim) answer(c *simConsumer) {
	r := c.read
	c.read = nil
	if r.member != c.member { // the term is another
		c.seq.Failed(r.plan)
		return
	}
	var seqs []int64
	for _, row := range r.rows {
		seqs = append(seqs, row.Seq)
	}
	s.say("c%d hears of its read %d from %d cursor %d: %v, walked %v", c.n, r.plan.Kind, r.plan.From, r.plan.Cursor, seqs, r.status.Walked)
	if c.seq.Answer(r.plan, &r.status, r.rows, s.now) {
		s.fail("numbers were forgotten")
	}
}

func (s *sim) deliver(c *simConsumer) {
	for _, m := range c.seq.Next(nil, 1) {
		r := s.byID(m.ID)
		c.tokens++
		token := fmt.Sprint(c.n, "/", c.tokens)
		c.seq.Delivered([]*Message{m}, func(int) any { return token })
		s.say("c%d DELIVERS m%d of key %d, number %d, fence %d, as %d", c.n, r.n, r.key, m.Seq, m.Fence, m.Delivery)
		for _, b := range r.before {
			if b.alive() && (s.holds || !b.died) || b.dead && s.holds {
				s.fail("m%d was delivered before m%d", r.n, b.n)
			}
		}
		for _, o := range s.consumers {
			if slices.ContainsFunc(o.out, func(x *Message) bool { return x.ID == m.ID }) {
				s.fail("m%d is delivered twice at a time", r.n)
			}
		}
		if !(r.alive() && r.fence == m.Fence) && !r.cancelled {
			s.fail("m%d is delivered with fence %d, and is %+v", r.n, m.Fence, *r)
		}
		if r.alive() {
			if m.Delivery <= r.delivered {
				s.fail("m%d is delivered with fence %d after %d", r.n, m.Delivery, r.delivered)
			}
			r.delivered = m.Delivery
			r.deliveries++
		}
		c.out = append(c.out, m)
	}
}

func (s *sim) begin(c *simConsumer, m *Message, how string) *simOp {
	r := s.byID(m.ID)
	op := &simOp{c: c, m: m, token: m.Token, row: r, seq: m.Seq, fence: m.Fence, delivery: m.Delivery, how: how, deliveries: r.deliveries}
	s.ops = append(s.ops, op)
	c.out = slices.DeleteFunc(c.out, func(o *Message) bool { return o == m })
	return op
}

// apply carries a settle out.
func (s *sim) apply(op *simOp) {
	r := op.row
	op.applied = true
	if r.locked || !r.alive() || r.fence != op.fence || r.seq != op.seq {
		s.say("%s of m%d matches nothing", op.how, r.n)
		return
	}
	if op.deliveries != r.deliveries {
		s.fail("%s of m%d applies to a later delivery", op.how, r.n)
	}
	op.hit = true
	switch op.how {
	case "ack":
		r.gone = true
	case "dead":
		r.dead, r.died, r.fence = true, true, max(r.fence, op.delivery)+1
	case "tx":
		r.locked = true
	default:
		r.fence, r.by = max(r.fence, op.delivery)+1, 0
	}
	s.say("%s of m%d applies, fence %d", op.how, r.n, r.fence)
}

// hear tells the consumer of it.
func (s *sim) hear(op *simOp, lost bool) {
	outcome := Unknown
	switch {
	case lost || !op.hit:
	case op.how == "ack":
		outcome = Acked
	case op.how == "dead":
		outcome = Dead
	case op.how == "tx":
		outcome = InTx
	default:
		outcome = Given
	}
	op.c.seq.Settled(op.m, op.token, outcome, 0, s.now+400*time.Millisecond, s.now)
}

func (s *sim) fenceOf(m *Message) int64 {
	if r := s.byID(m.ID); r.alive() && r.seq == m.Seq {
		return r.fence
	}
	return -1
}

// chore makes one of the statements about messages in memory.
func (s *sim) chore(c *simConsumer, lost bool) {
	if list, _ := c.seq.Marks(10, s.now); len(list) > 0 {
		done := map[*Message]bool{}
		for _, m := range list {
			r := s.byID(m.ID)
			if r.alive() && !r.locked && r.fence == m.Fence && r.seq == m.Seq {
				r.fence, r.by = max(r.fence+1, m.SlotFence()), c.member
				done[m] = true
				s.say("c%d marks m%d, fence %d, lost %v", c.n, r.n, r.fence, lost)
			}
		}
		if lost {
			c.seq.Marked(list, nil, s.now)
		} else {
			c.seq.Marked(list, func(m *Message) bool { return done[m] }, s.now)
		}
	}
	if list, blind := c.seq.Wants(10, s.now); len(list) > 0 {
		rows := map[[16]byte]*Row{}
		for _, m := range list {
			if r := s.byID(m.ID); r.alive() {
				row := s.row(r, c, !blind)
				rows[m.ID] = &row
			}
		}
		c.seq.Found(list, &Status{Walked: !lost, Redriven: s.redriven}, rows, s.now)
	}
	if list := c.seq.Lapses(10, s.now); len(list) > 0 {
		for _, m := range list {
			if r := s.byID(m.ID); r.alive() && !r.locked && r.fence == m.Fence && r.seq == m.Seq {
				r.fence, r.by = max(r.fence, m.Delivery)+1, 0
				s.say("c%d gives m%d back, fence %d, lost %v", c.n, r.n, r.fence, lost)
			}
		}
		c.seq.Lapsed(list, func(m *Message) int64 {
			if lost {
				return -2
			}
			return s.fenceOf(m)
		}, s.now)
	}
	if list := c.seq.Releases(); len(list) > 0 {
		done := map[*Message]bool{}
		for _, m := range list {
			if r := s.byID(m.ID); r.alive() && !r.locked && r.fence == m.Fence && r.seq == m.Seq {
				r.fence, r.by, done[m] = max(r.fence, m.Delivery)+1, 0, !lost
			}
		}
		c.seq.Released(list, func(m *Message) bool { return done[m] }, s.now)
	}
	if list := c.seq.Looks(10, s.now); len(list) > 0 {
		c.seq.Looked(list, s.fenceOf, s.now)
	}
	if slots, keys := c.seq.HeldKeys(10, s.now); len(keys) > 0 {
		held := make([]bool, len(keys))
		for i, key := range keys {
			held[i] = slices.ContainsFunc(s.rows, func(r *simRow) bool { return r.key_() == key && r.dead })
		}
		c.seq.Holds(slots, keys, held, s.redriven, s.now)
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
	return all[s.pick(len(all), "row")]
}

// senderStep moves one sender on.
func (s *sim) senderStep() {
	if !s.calm && len(s.rows) < 14 && s.chance(3, "new") {
		r := &simRow{n: len(s.rows) + 1, key: s.pick(simKeys, "key"), sent: true}
		for _, o := range s.rows {
			if o.key == r.key && o.released && o.visible {
				r.before = append(r.before, o)
			}
		}
		s.rows = append(s.rows, r)
		return
	}
	r := s.some(func(r *simRow) bool { return !r.released })
	switch {
	case r == nil:
	case !r.drawn:
		s.drawn++
		r.drawn, r.seq = true, s.drawn
	case !r.visible && !s.calm && s.chance(10, "roll back"):
		r.gone, r.released = true, true
	case !r.visible:
		r.visible = !r.gone
		s.say("m%d of key %d commits, number %d", r.n, r.key, r.seq)
		if r.gone {
			r.released = true
		}
	default:
		r.released = true
	}
}

func (s *sim) operate() {
	switch s.pick(4, "operator") {
	case 0:
		if r := s.some(func(r *simRow) bool { return r.alive() && r.released && !r.locked }); r != nil && !s.calm && s.chance(3, "cancel") {
			r.gone, r.cancelled = true, true
			s.say("m%d is cancelled", r.n)
		}
	case 1:
		if r := s.some(func(r *simRow) bool { return r.dead }); r != nil {
			r.dead, r.by = false, 0
			r.fence++
			s.redriven++
			s.say("m%d is redriven, fence %d", r.n, r.fence)
		}
	case 2:
		if r := s.some(func(r *simRow) bool { return r.dead }); r != nil && s.chance(3, "discard") {
			r.dead, r.gone = false, true
		}
	case 3:
		if r := s.some(func(r *simRow) bool { return r.locked }); r != nil {
			r.locked = false
			if s.chance(2, "commit") {
				r.gone = true
			}
			s.say("the transaction of m%d ends, gone %v", r.n, r.gone)
		}
	}
}

func (s *sim) consume(c *simConsumer) {
	if c.member == 0 {
		s.members++
		c.member = s.members
		s.alive[c.member] = true
		return
	}
	switch s.pick(9, "consumer") {
	case 0:
		s.take(c)
	case 1, 2:
		switch {
		case c.read == nil:
			if p := c.seq.Plan(s.now, 10, true); p != nil {
				c.read = &simRead{plan: p, member: c.member}
			}
		case !c.read.snapped:
			s.snap(c)
		case !c.read.sampled:
			s.sample(c)
		case !s.calm && s.chance(12, "answer lost"):
			c.seq.Failed(c.read.plan)
			c.seq.ReadAll()
			c.read = nil
		default:
			s.answer(c)
		}
	case 3:
		s.deliver(c)
	case 4:
		if len(c.out) > 0 {
			how := "ack"
			if !s.calm {
				how = []string{"ack", "ack", "nack", "release", "dead", "tx"}[s.pick(6, "how")]
			}
			s.begin(c, c.out[s.pick(len(c.out), "lease")], how)
		}
	case 5, 6:
		s.chore(c, !s.calm && s.chance(10, "lost"))
	case 7:
		s.give(c)
		if !s.calm && len(c.own) > 0 && s.chance(6, "close") && c.read == nil {
			for slot := range simSlots {
				if c.own[slot] {
					c.seq.Close(slot)
					break
				}
			}
		}
	case 8:
		if !s.calm && s.chance(15, "lose") {
			s.lose(c, s.chance(2, "crash"))
		}
	}
}

func (s *sim) step() {
	switch s.pick(8, "step") {
	case 0, 1:
		s.senderStep()
	case 2:
		s.operate()
	case 3:
		s.now += time.Duration(1+s.pick(300, "time")) * time.Millisecond
		if s.chance(4, "long") {
			s.now += time.Second
		}
	case 4:
		if len(s.ops) == 0 {
			return
		}
		i := s.pick(len(s.ops), "op")
		op := s.ops[i]
		switch {
		case !op.applied && !op.forgot && !s.calm && s.chance(8, "give up"):
			op.forgot = true
			s.hear(op, true)
		case !op.applied:
			s.apply(op)
		default:
			s.ops = slices.Delete(s.ops, i, i+1)
			if !op.forgot {
				s.hear(op, !s.calm && s.chance(10, "outcome lost"))
			}
		}
	default:
		s.consume(s.consumers[s.pick(len(s.consumers), "which")])
	}
}

func TestTheSequencerKeepsTheOrderOfKeysWhateverFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &sim{t: t, now: time.Second, alive: map[int]bool{}, holds: rapid.Bool().Draw(t, "holds")}
		for i := range 1 + s.pick(2, "consumers") {
			c := &simConsumer{n: i + 1}
			c.fresh(s)
			s.consumers = append(s.consumers, c)
		}
		for range rapid.IntRange(50, 400).Draw(t, "steps") {
			s.step()
		}
		// From here on nothing fails, and all is handled.
		s.calm = true
		s.say("calm")
		left := func() bool {
			return slices.ContainsFunc(s.rows, func(r *simRow) bool { return !r.gone })
		}
		for i := 0; left(); i++ {
			if i == 3000 {
				for _, r := range s.rows {
					if !r.gone {
						s.say("left: %+v", *r)
					}
				}
				for _, c := range s.consumers {
					s.say("c%d: %+v", c.n, c.seq.Counts())
				}
				s.fail("not all is handled")
			}
			s.calmStep(i)
		}
	})
}

// calmStep does what is to be done, in turn: no choice is left to chance.
func (s *sim) calmStep(i int) {
	s.now += 50 * time.Millisecond
	for _, r := range s.rows {
		switch {
		case !r.released && !r.drawn:
			s.drawn++
			r.drawn, r.seq = true, s.drawn
		case !r.released && !r.visible:
			r.visible = !r.gone
		case !r.released:
			r.released = true
		case r.locked:
			r.locked = false
		case r.dead && i%5 == 0:
			r.dead, r.by = false, 0
			r.fence++
			s.redriven++
			s.say("m%d is redriven, fence %d", r.n, r.fence)
		}
	}
	for _, op := range s.ops {
		if !op.applied {
			s.apply(op)
		}
		if !op.forgot {
			s.hear(op, false)
		}
	}
	s.ops = nil
	for _, c := range s.consumers {
		if c.member == 0 {
			s.members++
			c.member = s.members
			s.alive[c.member] = true
		}
		s.give(c)
		var taken []Taken
		for i := range s.slots {
			z := &s.slots[i]
			if z.owner != 0 && s.alive[z.owner] && (z.owner != c.member || c.own[i]) {
				continue
			}
			if z.owner != 0 {
				z.old = s.drawn
			}
			z.owner, z.fence = c.member, z.fence+100
			c.own[i] = true
			taken = append(taken, Taken{Slot: i, Fence: z.fence, Old: z.old})
		}
		if len(taken) > 0 {
			c.seq.Open(taken, s.now)
		}
		if c.read == nil {
			if p := c.seq.Plan(s.now, 10, true); p != nil {
				c.read = &simRead{plan: p, member: c.member}
			}
		}
		if c.read != nil {
			if !c.read.snapped {
				s.snap(c)
			}
			if !c.read.sampled {
				s.sample(c)
			}
			s.answer(c)
		}
		s.chore(c, false)
		s.deliver(c)
		for len(c.out) > 0 {
			s.begin(c, c.out[0], "ack")
		}
	}
}
