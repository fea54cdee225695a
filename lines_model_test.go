package chanq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chanq/chanq/sqlbatch"
)

// The model of lines: a database of rows, senders that draw a number and commit late, a
// claim whose answer is late or never comes, settles whose outcome is late or unknown,
// transactions of callers, locks, operators, another member, and a membership that
// lapses, be it in this process's view only. In some databases a claim does not see what a
// transaction is deleting. What is handed out is judged by the rows.

const (
	simLease = 100 * time.Millisecond
	simSlots = 2
)

// simRow is a row of the database. The counts are of steps of the test.
type simRow struct {
	name             int
	slot             int
	seq              int64
	key              string
	begun, committed int // send: before the number was drawn, and when it can be seen
	visible          bool
	dead, gone       bool
	mine             bool // who leases it: this member, or another
	until, due       time.Duration
	fence            int64
	locked           bool // by somebody
	tx               bool // deleted in a transaction that is open
	handled          int
	forgotten        bool // by the database, which another has replaced that lagged
}

func (r *simRow) id() ID { return ID{byte(r.name >> 8), byte(r.name)} }

func (r *simRow) alive() bool { return r.visible && !r.dead && !r.gone }

// simClaim is the claim under way.
type simClaim struct {
	plan     linePlan
	rows     int
	suspects bool
	start    time.Duration // local time before it was sent
	ran      bool
	found    []lineRow
	ends     []lineEnd
}

// simOwner is the owner of the leases.
type simOwner struct{ *sim }

func (simOwner) home() *queue                                                { return nil }
func (simOwner) parent() context.Context                                     { return context.Background() }
func (simOwner) settle(context.Context, *lease) error                        { return nil }
func (simOwner) extend(context.Context, *lease, time.Duration) (bool, error) { return false, nil }
func (simOwner) awaits(*lease) bool                                          { return false }
func (simOwner) hurry()                                                      {}
func (simOwner) ended(*lease)                                                {}
func (simOwner) expire(*lease)                                               {}
func (simOwner) settled(SettledEvent)                                        {}
func (simOwner) broken(error)                                                {}
func (o simOwner) moved(leases ...*lease) {
	for _, l := range leases {
		o.lines.moved(l, o.now)
	}
}

type sim struct {
	t     *rapid.T
	lines *lines
	holds bool
	hides bool // what a transaction is deleting is seen by claims in doubt only
	now   time.Duration
	step  int

	rows    []*simRow
	number  int64
	horizon int64
	fences  [simSlots]int64 // of the slots in the database
	owner   [simSlots]bool  // that is us
	here    time.Duration   // end of membership as we know it
	there   time.Duration   // and in the database
	fence   int64

	claim    *simClaim
	leases   map[*lease]*simRow // all that we ever had
	out      []*lease           // with readers
	settling []*lease           // on their way to the database
	answers  map[*lease]error   // outcomes that we have not heard of
}

func newSim(t *rapid.T) *sim {
	s := &sim{t: t, holds: rapid.Bool().Draw(t, "holds"), leases: map[*lease]*simRow{}, answers: map[*lease]error{}, now: time.Second}
	s.hides = rapid.Bool().Draw(t, "hides")
	s.lines = newLines(lineConfig{prefetch: 16, leaseFor: simLease, holds: s.holds, hides: s.hides})
	s.heartbeat(true)
	s.takeSlots()
	return s
}

func (s *sim) pick(n int, what string) int    { return rapid.IntRange(0, n-1).Draw(s.t, what) }
func (s *sim) chance(n int, what string) bool { return s.pick(n, what) == 0 }

// Senders.

func (s *sim) send() {
	s.number++
	k := s.pick(3, "key")
	s.rows = append(s.rows, &simRow{name: len(s.rows), slot: k % simSlots, seq: s.number, key: fmt.Sprint("k", k), begun: s.step})
	if !s.chance(4, "late") {
		s.commit(s.rows[len(s.rows)-1])
	}
}

func (s *sim) commit(r *simRow) { r.visible, r.committed = true, s.step }

func (s *sim) some(what string, that func(*simRow) bool) *simRow {
	var all []*simRow
	for _, r := range s.rows {
		if that(r) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[s.pick(len(all), what)]
}

func (s *sim) sample() {
	s.horizon = s.number
	for _, r := range s.rows {
		if !r.visible && !r.gone {
			s.horizon = min(s.horizon, r.seq-1)
		}
	}
}

// Membership.

func (s *sim) heartbeat(heard bool) {
	if s.there < s.now { // it was gone: others may have had the slots
		s.visit()
	}
	s.there = s.now + simLease
	if heard {
		s.here = s.there
	}
}

// visit has another member work on slots that are free.
func (s *sim) visit() {
	for slot := range simSlots {
		if s.owner[slot] && s.there >= s.now || s.chance(2, "visit") {
			continue
		}
		s.owner[slot] = false
		s.fences[slot]++
		for n := s.pick(4, "others"); n > 0; n-- {
			if r := s.first(slot); r != nil {
				s.fence++
				r.fence, r.until, r.mine = s.fence, 0, false
				switch s.pick(3, "other's outcome") {
				case 0:
					r.gone = true
				case 1:
					r.dead = true
				case 2:
					r.due = s.now + time.Duration(s.pick(50, "delay"))*time.Millisecond
				}
			}
		}
	}
}

// first is a row of a slot that another member would hand out.
func (s *sim) first(slot int) *simRow {
	closed := map[string]bool{}
	for _, r := range s.rows {
		if s.holds && r.dead {
			closed[r.key] = true
		}
	}
	return s.some("row", func(r *simRow) bool {
		if r.slot != slot || !r.alive() || closed[r.key] || r.locked || r.tx || r.until > s.now || r.due > s.now {
			return false
		}
		return !slices.ContainsFunc(s.rows, func(o *simRow) bool { return o.key == r.key && o.seq < r.seq && o.alive() })
	})
}

// takeSlots takes them again, under new fences.
func (s *sim) takeSlots() {
	if s.now >= s.here {
		return
	}
	for slot := range simSlots {
		s.fences[slot]++
		s.owner[slot] = true
		s.lines.open(slot, s.fences[slot], 0, s.now)
	}
	s.ask(true)
}

// lapse notes the end of membership in our view.
func (s *sim) lapse() {
	if s.now >= s.here {
		for slot := range simSlots {
			s.lines.drop(slot)
		}
		s.giveBack()
	}
}

// Claims.

func (s *sim) plan() {
	p := s.lines.plan(s.now, s.horizon, 30*time.Millisecond, s.chance(10, "probe"))
	s.ask(false)
	s.giveBack()
	if len(p.parts) > 0 {
		s.claim = &simClaim{plan: p, rows: 1 + s.pick(8, "rows"), suspects: s.chance(5, "suspects"), start: s.now}
	}
}

// run runs the claim in the database.
func (s *sim) run() {
	c := s.claim
	c.ran = true
	left := c.rows
	here := min(c.start+simLease, s.here) - 1
	for _, p := range c.plan.parts {
		if !s.owner[p.Slot] || s.fences[p.Slot] != p.Fence || s.there <= s.now {
			continue
		}
		if left == 0 || s.shut(p) { // not looked at, for want of room
			c.ends = append(c.ends, lineEnd{slot: p.Slot, seq: p.From})
			continue
		}
		end := lineEnd{slot: p.Slot, seq: slotEnd}
		walked, last := 0, p.From
		all := slices.SortedFunc(slices.Values(s.rows), func(a, b *simRow) int { return cmp.Compare(a.seq, b.seq) })
		for _, r := range all {
			if r.slot != p.Slot || r.seq <= p.From || !r.alive() || s.hides && r.tx {
				continue
			}
			if walked == p.Limit || left == 0 {
				end.seq = last
				break
			}
			last = r.seq
			row := lineRow{id: r.id(), slot: r.slot, seq: r.seq, key: lineKey{r.key, true}}
			switch {
			case r.until > s.now && r.mine:
				if !c.plan.mine {
					continue
				}
				row.wait = r.until - s.now
			case r.until > s.now:
				row.wait = r.until - s.now
			case r.due > s.now:
				row.wait = r.due - s.now
			case r.locked, r.tx, !c.suspects && s.chance(10, "suspect"):
			default:
				s.fence++
				r.fence, r.mine, r.until = s.fence, true, min(s.now+simLease, s.there)
				l := &lease{owner: simOwner{s}, item: sqlbatch.Item{ID: r.id(), Fence: r.fence}}
				l.deadline.Store(int64(here))
				row.lease = l
				s.leases[l] = r
			}
			left--
			walked++
			c.found = append(c.found, row)
		}
		c.ends = append(c.ends, end)
	}
}

// shut: a part in doubt is not claimed from where something is being deleted.
func (s *sim) shut(p sqlbatch.SlotPart) bool {
	return s.hides && p.Doubt && slices.ContainsFunc(s.rows, func(r *simRow) bool { return r.slot == p.Slot && r.seq > p.From && r.tx })
}

// known: we have heard of the row.
func (s *sim) known(r *simRow) bool {
	slot := s.lines.slot(r.slot)
	return slot != nil && slot.spots[r.seq] != nil
}

// hear hears of what a claim found.
func (s *sim) hear() {
	s.lines.claimed(s.claim.plan, s.claim.found, s.claim.ends, s.now)
	s.claim = nil
	s.ask(false)
	s.giveBack()
}

// loseClaim: the answer never comes, and the slots are taken again.
func (s *sim) loseClaim() {
	s.claim = nil
	s.takeSlots()
}

// ask tells which lines the dead hold.
func (s *sim) ask(all bool) {
	if !s.holds {
		return
	}
	for _, slot := range s.lines.asking(all) {
		held := map[lineKey]bool{}
		for _, r := range s.rows {
			if r.slot == slot && r.dead {
				held[lineKey{r.key, true}] = true
			}
		}
		s.lines.allow(slot, held, s.now)
	}
}

// giveBack hands the leases that lines give back to the settler.
func (s *sim) giveBack() {
	back, lost := s.lines.collect()
	for _, l := range back {
		if l.beginSettling() {
			l.op = settleRelease
			s.settling = append(s.settling, l)
		}
	}
	for _, l := range lost {
		l.lose(leaseLost)
		s.lines.moved(l, s.now)
	}
}

// Readers.

func (s *sim) handOut() {
	if l, _ := s.lines.next(); l != nil {
		r := s.leases[l]
		if l.state.Load() != leaseHeld || s.now >= l.deadlineAt() {
			if l.beginSettling() { // a reader skips it
				l.op = settleRelease
				s.settling = append(s.settling, l)
			}
			return
		}
		r.handled++
		for _, o := range s.rows {
			if o.key != r.key || o == r || r.forgotten {
				continue
			}
			if o.alive() && o.committed < r.begun {
				s.t.Fatalf("%d was handed out before %d, which was sent before", r.name, o.name)
			}
			if s.holds && o.dead && o.committed < r.begun {
				s.t.Fatalf("%d was handed out though %d is dead", r.name, o.name)
			}
		}
		for _, o := range s.out {
			if s.leases[o].key == r.key && !s.leases[o].forgotten && !r.forgotten && o.state.Load() == leaseHeld && s.now < o.deadlineAt() {
				s.t.Fatalf("%d was handed out beside %d", r.name, s.leases[o].name)
			}
		}
		s.out = append(s.out, l)
	}
}

func (s *sim) reader() (i int, any bool) {
	if len(s.out) == 0 {
		return 0, false
	}
	return s.pick(len(s.out), "reader"), true
}

func (s *sim) settle(op settleOp) {
	i, any := s.reader()
	if !any {
		return
	}
	l := s.out[i]
	s.out = slices.Delete(s.out, i, i+1)
	if l.settle(op, 0, "") == nil { // its owner takes it over, and does nothing
		if op == settleNack {
			l.delay = time.Duration(s.pick(50, "delay")) * time.Millisecond
		}
		s.settling = append(s.settling, l)
	}
}

// store stores the settle of one lease.
func (s *sim) store() {
	if len(s.settling) == 0 {
		return
	}
	i := s.pick(len(s.settling), "settle")
	l := s.settling[i]
	s.settling = slices.Delete(s.settling, i, i+1)
	r := s.leases[l]
	s.answers[l] = ErrLeaseLost
	if !r.alive() || r.fence != l.item.Fence || !r.mine || r.locked || r.tx {
		if r.gone && l.inTx {
			s.answers[l] = ErrSettled
		}
		return
	}
	if l.op == settleDead && r.until <= s.now {
		return
	}
	s.answers[l] = nil
	if s.chance(8, "unknown") {
		s.answers[l] = errors.New("unknown")
	}
	r.until = 0
	switch l.op {
	case settleAck:
		r.gone = true
	case settleDead:
		r.dead = true
	case settleNack:
		r.due = s.now + l.delay
	}
	r.mine = false
}

// answer tells the outcome of one settle.
func (s *sim) answer() {
	var all []*lease
	for l := range s.answers {
		all = append(all, l)
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b *lease) int { return cmp.Compare(a.item.Fence, b.item.Fence) })
	l := all[s.pick(len(all), "answer")]
	err := s.answers[l]
	delete(s.answers, l)
	l.finish(err)
	s.giveBack()
}

func (s *sim) ackTx() {
	if i, any := s.reader(); any {
		l := s.out[i]
		r := s.leases[l]
		if l.enterTx() == nil {
			s.out = slices.Delete(s.out, i, i+1)
			if r.alive() && r.fence == l.item.Fence && r.mine && !r.tx && !r.locked {
				r.tx = true
			}
		}
	}
}

func (s *sim) endTx() {
	if r := s.some("transaction", func(r *simRow) bool { return r.tx }); r != nil {
		r.tx = false
		if s.chance(2, "commit") {
			r.gone = true
		}
	}
}

func (s *sim) look() {
	due, _ := s.lines.looks(s.now)
	for _, l := range due {
		r := s.leases[l]
		switch {
		case !r.alive():
			s.lines.looked(l, standsGone, s.now)
		case r.fence != l.item.Fence:
			s.lines.looked(l, standsMoved, s.now)
		default:
			s.lines.looked(l, standsOurs, s.now)
		}
	}
}

// expire has the leases told that ran out.
func (s *sim) expire() {
	for l := range s.leases {
		if l.state.Load() == leaseHeld && s.now >= l.deadlineAt() {
			l.lose(leaseExpired)
		}
	}
	s.out = slices.DeleteFunc(s.out, func(l *lease) bool { return l.state.Load() != leaseHeld && s.chance(2, "forget") })
}

// failOver has another database take over that has not heard of the last messages. Senders
// that had not committed are gone with the first.
func (s *sim) failOver() {
	kept := s.number - int64(s.pick(4, "forgotten"))
	s.number = 0
	for _, r := range s.rows {
		if r.seq > kept && !r.forgotten || !r.visible {
			r.gone, r.dead, r.forgotten = true, false, true
		}
		if !r.forgotten {
			s.number = max(s.number, r.seq)
		}
		if r.tx {
			r.tx = false
		}
	}
	s.horizon = 0
	if s.claim != nil {
		s.loseClaim()
	}
	s.lines.forget(s.now)
}

// check checks the counts, and the bounds.
func (s *sim) check() {
	waiting := 0
	for _, slot := range s.lines.slots {
		w, o, e := 0, 0, 0
		for seq, t := range slot.spots {
			if t.seq != seq || t.line.slot != slot || slot.lines[t.line.key] != t.line {
				s.t.Fatalf("spot %d is misplaced", seq)
			}
			switch t.state {
			case spotWaits:
				w++
			case spotOut:
				o++
			case spotKnown:
				e++
			}
		}
		if w != slot.waiting || o != slot.out || e != len(slot.entries) {
			s.t.Fatalf("slot %d counts %d, %d, %d: there are %d, %d, %d", slot.number, slot.waiting, slot.out, len(slot.entries), w, o, e)
		}
		waiting += w
		for _, l := range slot.lines {
			out := 0
			for i, t := range l.spots {
				if i > 0 && l.spots[i-1].seq >= t.seq {
					s.t.Fatalf("line %v is out of order", l.key)
				}
				if t.state == spotOut {
					out++
				}
			}
			if out > 1 {
				s.t.Fatalf("line %v has %d handed out", l.key, out)
			}
		}
	}
	if waiting != s.lines.waiting {
		s.t.Fatalf("%d wait, %d are counted", waiting, s.lines.waiting)
	}
}

// finish has everything go well, until all messages are gone.
func (s *sim) finish() {
	for _, r := range s.rows {
		if !r.visible && !r.gone {
			s.commit(r)
		}
		r.locked = false
		if r.tx {
			r.tx, r.gone = false, true
		}
	}
	s.sample()
	for range 3000 {
		s.step++
		s.now += 5 * time.Millisecond
		s.lapse()
		s.heartbeat(true)
		if len(s.lines.slots) < simSlots || !s.owner[0] || !s.owner[1] {
			s.takeSlots()
		}
		if s.holds {
			for _, r := range s.rows { // an operator
				if r.dead {
					r.dead, r.gone = false, true
				}
			}
			s.ask(true)
		}
		if s.claim == nil {
			s.plan()
		}
		if s.claim != nil {
			if !s.claim.ran {
				s.claim.suspects = true
				s.run()
			}
			s.hear()
		}
		s.handOut()
		s.expire()
		s.settle(settleAck)
		s.look()
		for len(s.settling) > 0 {
			s.store()
		}
		for len(s.answers) > 0 {
			s.answer()
		}
		s.check()
		if !slices.ContainsFunc(s.rows, func(r *simRow) bool { return r.alive() }) {
			return
		}
	}
	for _, r := range s.rows {
		if r.alive() {
			s.t.Errorf("%d of %s is not handed out: %+v", r.name, r.key, *r)
		}
	}
	s.t.FailNow()
}

func TestNoMessageOvertakesAnotherOfItsKeyWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t)
		act := map[string]func(*rapid.T){
			"send":   func(*rapid.T) { s.send() },
			"send 2": func(*rapid.T) { s.send() },
			"commit": func(*rapid.T) {
				if r := s.some("sender", func(r *simRow) bool { return !r.visible && !r.gone }); r != nil {
					s.commit(r)
				}
			},
			"sample": func(*rapid.T) { s.sample() },
			"claim": func(*rapid.T) {
				switch {
				case s.claim == nil:
					s.plan()
				case !s.claim.ran:
					s.run()
				case s.chance(8, "lost"):
					s.loseClaim()
				default:
					s.hear()
				}
			},
			"hand out":   func(*rapid.T) { s.handOut() },
			"hand out 2": func(*rapid.T) { s.handOut() },
			"ack":        func(*rapid.T) { s.settle(settleAck) },
			"nack":       func(*rapid.T) { s.settle(settleNack) },
			"release":    func(*rapid.T) { s.settle(settleRelease) },
			"dead":       func(*rapid.T) { s.settle(settleDead) },
			"store":      func(*rapid.T) { s.store() },
			"answer":     func(*rapid.T) { s.answer() },
			"ack tx":     func(*rapid.T) { s.ackTx() },
			"end tx":     func(*rapid.T) { s.endTx() },
			"look":       func(*rapid.T) { s.look() },
			"expire":     func(*rapid.T) { s.expire() },
			"wait":       func(*rapid.T) { s.now += time.Duration(1+s.pick(40, "ms")) * time.Millisecond; s.lapse() },
			"heartbeat":  func(*rapid.T) { s.heartbeat(!s.chance(5, "unheard")) },
			"take": func(*rapid.T) {
				if s.there > s.now {
					s.takeSlots()
					if s.claim != nil && s.claim.ran { // of before
						s.claim.found, s.claim.ends = nil, nil
					}
				}
			},
			"lock": func(*rapid.T) {
				if r := s.some("row", func(r *simRow) bool { return r.alive() && !r.tx }); r != nil {
					r.locked = !r.locked
				}
			},
			"cancel": func(*rapid.T) {
				if r := s.some("row", func(r *simRow) bool { return r.alive() && !r.tx && !r.locked }); r != nil {
					r.gone = true
				}
			},
			"cancel tx": func(*rapid.T) { // where it is hidden, of what nobody has seen yet, the key is open
				r := s.some("row", func(r *simRow) bool { return r.alive() && !r.tx && !r.locked && (!s.hides || s.known(r)) })
				if r != nil {
					r.tx = true
				}
			},
			"fail over": func(*rapid.T) {
				if s.chance(4, "fail over") {
					s.failOver()
				}
			},
			"redrive": func(*rapid.T) {
				if r := s.some("dead", func(r *simRow) bool { return r.dead }); r != nil {
					// It was dead: whoever was sent since may go before it.
					r.dead, r.committed, r.due, r.until = false, math.MaxInt, 0, 0
				}
			},
			"": func(*rapid.T) { s.step++; s.check() },
		}
		t.Repeat(act)
		s.finish()
	})
}
