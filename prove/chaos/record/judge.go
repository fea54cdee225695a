package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// skew bounds the difference between the clocks that recorded times. All are of one machine, but a process counts on
// from its start while others follow corrections.
const skew = 20 * time.Millisecond

// Judge checks a complete history: all processes have ended, and the queue is empty. It finds
//
//   - messages that were stored and never delivered, or released and never
//     delivered again;
//   - messages that were never sent, or whose ID changed or belonged to another one;
//   - deliveries after a confirmed ack or dead-lettering;
//   - holders that were not killed and never got the outcome of their
//     lease, or got a loss after which the message was not redelivered: each
//     redelivery is thereby explained by a kill, by a request of the holder,
//     or by an outcome that it got;
//   - deliveries before the end of an earlier holder's lease;
//   - attempts that do not rise, or rise more than kills, outages and losses
//     explain, or faster than leases end;
//   - in a strict history, leases that were lost though nothing had stopped them;
//   - in an ordered history, messages delivered after one of their key that was sent later, or while another one was handled.
func (h *History) Judge() Verdict {
	j := checker{History: h, ids: map[chanq.ID]string{}, verdict: Verdict{Faults: slices.Clone(h.Strays)}}
	for _, m := range h.Messages {
		h.arrange(m)
		j.check(m)
		if h.Strict {
			j.checkLosses(m)
		}
	}
	if h.Ordered {
		j.checkOrder()
	}
	return j.verdict
}

type checker struct {
	*History
	ids     map[chanq.ID]string // names
	verdict Verdict
}

func (j *checker) fault(m *Message, format string, args ...any) {
	j.verdict.Faults = append(j.verdict.Faults, fmt.Sprintf("%s: %s%s", m.Name, fmt.Sprintf(format, args...), j.Story(m)))
}

// Story returns the history of a message, a line for each send and each delivery.
func (h *History) Story(m *Message) string {
	var b strings.Builder
	killed := func(process int) {
		if at := h.killed[process]; at > 0 {
			fmt.Fprintf(&b, "; killed at %s", clock(at))
		}
	}
	for i, sends := range [][]Sending{m.Intents, m.Stored, m.Dropped} {
		for _, s := range sends {
			fmt.Fprintf(&b, "\n    %s by process %d at %s", []Kind{Intended, Stored, Dropped}[i], s.Process, clock(s.At))
			killed(s.Process)
		}
	}
	for _, d := range slices.Concat(m.Deliveries, m.late) {
		fmt.Fprintf(&b, "\n    process %d got it at %s, attempt %d, until %s, to %s it: %s", d.Process, clock(d.At), d.Attempt, clock(d.Deadline),
			cmp.Or(string(d.How), "handle"), cmp.Or(string(d.Outcome), "no outcome"))
		if d.Heard > 0 {
			fmt.Fprintf(&b, " at %s", clock(d.Heard))
		}
		killed(d.Process)
	}
	return b.String()
}

func clock(at int64) string { return time.Unix(0, at).Format("15:04:05.000000") }

func (j *checker) check(m *Message) {
	v := &j.verdict
	if len(m.Intents) == 0 {
		j.fault(m, "it was never sent")
		return
	}
	v.Messages++
	j.judgeIdentity(m)
	j.checkGuilty(m)
	if len(m.Stored) > 0 {
		v.Stored++
	}
	if len(m.Deliveries) == 0 {
		if len(m.Stored) > 0 && GuiltOf(m.Name) != Unreadable {
			j.fault(m, "LOST: stored, never delivered")
		}
		return
	}
	v.Delivered++
	v.Stale += len(m.late)
	v.Deliveries += len(m.Deliveries)
	if len(m.Stored) == 0 {
		v.Unsure++
	}
	again := j.storedAgain(m)
	first, row := 0, 0 // of those of one row
	for i := range m.Deliveries {
		switch {
		case i == first:
		case j.repeated(m, i):
			first, row = i, row+1
		case again > 0 && begins(m.Deliveries[i-1], m.Deliveries[i]):
			again--
			first, row = i, row+1
		default:
			j.checkNext(m, m.Deliveries[i-1], m.Deliveries[i])
		}
		m.Deliveries[i].row = row
		j.checkAttempt(m, i, first)
		j.judgeOutcome(m, i)
	}
	v.Duplicates.Again += row
}

// judgeOutcome checks that a holder got the outcome of its lease, and that the message was redelivered if it had to be.
func (j *checker) judgeOutcome(m *Message, i int) {
	d, last := m.Deliveries[i], i == len(m.Deliveries)-1
	switch {
	case d.Outcome == "" && j.killed[d.Process] == 0:
		j.fault(m, "process %d was not killed and never knew the outcome of its lease", d.Process)
	case d.Outcome == Failed && GuiltOf(m.Name) != Undeletable:
		j.fault(m, "process %d got neither an outcome nor that it is unknown: %s", d.Process, d.Error)
	case d.Outcome == Lost && last:
		j.fault(m, "LOST: process %d got the loss of its lease, and the message was not redelivered after it", d.Process)
	case last && !d.ends() && GuiltOf(m.Name) != Deadly:
		j.fault(m, "LOST: not ended by process %d, and never delivered again", d.Process)
	case last && d.final() && d.How == DeadLetter:
		j.verdict.DeadLettered++
	case last && d.final():
		j.verdict.Acked++
	}
}

// judgeIdentity checks that a message kept its ID.
func (j *checker) judgeIdentity(m *Message) {
	var id chanq.ID
	check := func(other chanq.ID) {
		switch {
		case other.IsZero(): // not yet known to the sender
			return
		case id.IsZero():
			id = other
		case id != other:
			j.fault(m, "it has the IDs %s and %s", id, other)
		}
		if name, known := j.ids[other]; known && name != m.Name {
			j.fault(m, "its ID %s is that of %s", other, name)
		}
		j.ids[other] = m.Name
	}
	for _, s := range slices.Concat(m.Intents, m.Stored) {
		check(s.ID)
	}
	for _, d := range m.Deliveries {
		check(d.ID)
	}
}

// storedAgain returns how often a message can have been stored after its row was gone: sends repeated by their sender,
// or by chanq because an outage hid the outcome.
func (j *checker) storedAgain(m *Message) int {
	n := len(m.Intents) - 1
	for _, sent := range m.Intents {
		end := j.end(sent, m.Stored)
		for _, o := range j.Outages {
			if o.From < end && o.To > sent.At {
				n++
			}
		}
		for _, f := range j.Freezes[sent.Process] { // a frozen INSERT that was given up and repeated arrives afterwards
			if f.From < end && f.To > end {
				n++
			}
		}
	}
	return n
}

// end returns when a send ended, as far as known.
func (j *checker) end(sent Sending, stored []Sending) int64 {
	for _, s := range stored {
		if s.Process == sent.Process {
			return s.At
		}
	}
	if at := j.killed[sent.Process]; at > 0 {
		return at
	}
	return 1 << 62
}

// repeated reports whether, in a history with broken connections, an INSERT with an unknown outcome was repeated after
// the message had ended: its sender did not know that it was stored when its holder began to end it. This takes longer
// after unreported leases, whose claims had no answer or whose holders died.
func (j *checker) repeated(m *Message, i int) bool {
	before, d := m.Deliveries[i-1], m.Deliveries[i]
	known := slices.ContainsFunc(m.Stored, func(s Sending) bool { return s.At <= before.Settling })
	unseen := time.Duration(d.Attempt-1) * j.LeaseFor
	return j.Broken && begins(before, d) && !known && time.Duration(d.At-before.At)+skew >= unseen
}

// begins reports whether a delivery is the first of another row: the message was consumed, as far as its holder
// survived to see it, and its attempts start again.
func begins(before, d Delivery) bool {
	return before.final() || before.ends() && d.Attempt <= before.Attempt
}

// checkNext checks a redelivery of a message.
func (j *checker) checkNext(m *Message, before, d Delivery) {
	why, killed := &j.verdict.Duplicates, j.killed[before.Process]
	switch {
	case before.final():
		j.fault(m, "delivered to process %d after its end by process %d was confirmed", d.Process, before.Process)
	case before.Outcome == Confirmed, before.Outcome == "" && killed > d.At && before.asks():
		why.Asked++ // the answer to a killed holder might have been lost with it
	case before.Outcome != "":
		why.Informed++
	case killed == 0: // judgeOutcome
	case killed <= d.At:
		why.Killed++
	case j.Strict:
		j.fault(m, "delivered to process %d while process %d held it", d.Process, before.Process)
	case j.failed(before.At, d.At):
		why.Outage++
	default:
		why.Late++
	}
	least := before.Attempt + 1
	switch before.How {
	case Release, Snooze, Hold:
		least = 1 // they refund the attempt, and attempts that were lapses
	case Nack:
		least = 2 // it counts, and attempts that were lapses no longer do
	}
	if j.Ordered {
		least = min(least, before.Attempt) // it does not count a first crash
	}
	if d.Attempt < least {
		j.fault(m, "attempt %d follows attempt %d", d.Attempt, before.Attempt)
	}
	// Only a holder that gave it back ended its own lease. One that was killed at work did not.
	if !before.asks() && d.At+int64(skew) < before.Deadline {
		j.fault(m, "delivered to process %d at %s, before the lease of process %d could end at %s",
			d.Process, clock(d.At), before.Process, clock(before.Deadline))
	}
}

// failed reports whether there was an outage between two times.
func (j *checker) failed(from, to int64) bool {
	return slices.ContainsFunc(j.Outages, func(o Span) bool { return o.From < to && o.To > from })
}

// checkAttempt checks the attempt of delivery i, where first is the first delivery of the same row.
func (j *checker) checkAttempt(m *Message, i, first int) {
	d := m.Deliveries[i]
	j.verdict.MostAttempt = max(j.verdict.MostAttempt, d.Attempt)
	before, nacks := 0, 0
	for _, e := range m.Deliveries[first:i] {
		before = e.Attempt
		if e.How == Nack {
			nacks++ // a nack ends a lease immediately
		}
	}
	j.verdict.Unseen += max(0, d.Attempt-before-1)
	if d.Attempt < 1 {
		j.fault(m, "attempt %d", d.Attempt)
	}
	if j.Broken {
		return // it is unknown which claims lost their answers
	}
	sent := m.Intents[0].At
	if ended := j.ended(m, d, m.Deliveries[first:i]); d.Attempt > 1+ended {
		j.fault(m, "attempt %d, after %d kills, outages and losses", d.Attempt, ended)
	}
	leases := d.Attempt - 1 - nacks
	if took, least := time.Duration(d.At-sent), time.Duration(leases)*j.LeaseFor; took+skew < least {
		j.fault(m, "attempt %d came %v after the send: %d leases take %v", d.Attempt, took, leases, least)
	}
}

// ended returns how many claims of a message can have ended without a settle before a delivery. earlier are the
// deliveries before it.
func (j *checker) ended(m *Message, d Delivery, earlier []Delivery) int {
	sent := m.Intents[0].At
	n := len(m.late)
	for process, at := range j.killed {
		if at < sent {
			continue
		}
		// The lease of a process that was killed only later might have expired, if it ran that long.
		started, known := j.reached[state{process, Started}]
		if at < d.At || known && d.At-started >= int64(j.LeaseFor) {
			n++
		}
	}
	for _, o := range j.Outages {
		if o.To > sent && o.From < d.At {
			n++
		}
	}
	for _, e := range earlier {
		if e.Outcome != "" || e.How == Nack && j.killed[e.Process] > d.At {
			n++
		}
	}
	return n
}

// checkLosses checks that every lost lease was blocked itself: another transaction had locked its row when it ended, or
// it arrived so late, over a frozen connection, that less than half of it was left. A loss is not explained by a
// connection that froze during a settle or an extension, by one that broke, or by a lock on another row.
func (j *checker) checkLosses(m *Message) {
	for _, id := range m.known() {
		for _, x := range j.losses[id] {
			// It is reported when the end is noticed: by the settle, or by the next extension.
			noticed := Span{x.At - int64(j.LeaseFor), x.At}
			switch {
			case slices.ContainsFunc(j.Locks[id], noticed.meets):
				j.verdict.LostLocked++
			case slices.ContainsFunc(j.slow[x.Process], func(claim Span) bool {
				return noticed.meets(Span{claim.To, claim.To}) && slices.ContainsFunc(j.Freezes[x.Process], claim.meets)
			}):
				j.verdict.LostSlow++
			default:
				var frozen []string // the loss is a defect, or the machine is too slow: they help to tell
				for _, f := range j.Freezes[x.Process] {
					if f.meets(Span{x.At - 3*int64(j.LeaseFor), x.At}) {
						frozen = append(frozen, fmt.Sprintf("%v to %v before", time.Duration(x.At-f.From), time.Duration(x.At-f.To)))
					}
				}
				j.fault(m, "process %d lost the lease of attempt %d, and nothing explains it; connections frozen: %v",
					x.Process, x.Attempt, frozen)
			}
		}
	}
}

// known returns the IDs with which a message was seen: more than one is a fault.
func (m *Message) known() (ids []chanq.ID) {
	for _, s := range slices.Concat(m.Intents, m.Stored) {
		ids = append(ids, s.ID)
	}
	for _, d := range slices.Concat(m.Deliveries, m.late) {
		ids = append(ids, d.ID)
	}
	slices.SortFunc(ids, func(a, b chanq.ID) int { return slices.Compare(a[:], b[:]) })
	return slices.DeleteFunc(slices.Compact(ids), chanq.ID.IsZero)
}

// turn is a delivery of a message of a key.
type turn struct {
	*Message
	number int
	got    Delivery
}

// checkOrder checks the deliveries of each key. A process that was stopped receives expired leases, which no longer
// count unless their settles did.
func (j *checker) checkOrder() {
	keys, last := map[string][]turn{}, map[batch]int{}
	for _, m := range j.Messages {
		key, number := ParseName(m.Name)
		for _, s := range m.Intents {
			last[batch{key, s.Process, s.At}] = max(last[batch{key, s.Process, s.At}], number)
		}
		for _, d := range m.Deliveries {
			if d.Deadline == 0 || d.At < d.Deadline || d.Outcome == Confirmed {
				keys[key] = append(keys[key], turn{m, number, d})
			}
		}
	}
	for key, turns := range keys {
		slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.got.At, b.got.At) })
		came, highest := map[int]turn{}, 0
		var before turn // the one that was handled for longest
		for _, t := range turns {
			together := 0 // the last message that was sent with it
			for _, s := range t.Intents {
				together = max(together, last[batch{key, s.Process, s.At}])
			}
			for later := highest; later > t.number; later-- {
				// Later sends might have reached the table before it, unless its sender knew that it was stored. Messages that
				// were sent with it were also stored again with it.
				if o, is := came[later]; is && (later > together && len(t.Stored) > 0 || later <= together && o.got.row >= t.got.row) {
					j.fault(t.Message, "INVERSION: delivered to process %d at %s, after message %d:%s",
						t.got.Process, clock(t.got.At), later, j.Story(o.Message))
					break
				}
			}
			if until := before.got.handled(); t.got.At < until {
				j.fault(t.Message, "OVERLAP: delivered to process %d at %s, while message %d was handled until %s:%s",
					t.got.Process, clock(t.got.At), before.number, clock(until), j.Story(before.Message))
			}
			if t.got.handled() > before.got.handled() {
				before = t
			}
			came[t.number], highest = t, max(highest, t.number)
		}
	}
}

// batch has messages of a key that were sent together.
type batch struct {
	key     string
	process int
	at      int64
}

// handled returns until when a lease was handled: until its holder began to settle it, or its end.
func (d Delivery) handled() int64 {
	if d.Settling > 0 && (d.Deadline == 0 || d.Settling < d.Deadline) {
		return d.Settling
	}
	return d.Deadline
}
