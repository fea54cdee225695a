package kills

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// skew is how far the clocks that took times down may be apart: all of one
// machine, but one counts on from its start and others follow corrections.
const skew = 20 * time.Millisecond

// Judge judges a history that has come to its end: all processes have ended, and
// the queue is empty. It finds
//
//   - messages that were stored and never delivered, or given back and never
//     delivered again;
//   - messages that nobody sent, or whose ID changed or was another's;
//   - deliveries after an ack or a burial that was confirmed;
//   - holders that were not killed and were never told the outcome of their
//     lease, or were told of a loss that gave the message to nobody: what is
//     delivered twice is thereby explained by a kill, by what the holder asked for,
//     or by what it knew;
//   - deliveries before the end of the lease that an earlier holder had;
//   - attempts that do not rise, or rise more than kills, outages and losses
//     explain, or faster than leases end;
//   - in a strict history, leases that were lost though nothing had stopped them.
func (h *History) Judge() Verdict {
	j := judge{History: h, ids: map[chanq.ID]string{}, verdict: Verdict{Faults: slices.Clone(h.strays)}}
	for _, m := range h.messages {
		h.arrange(m)
		j.judge(m)
		if h.Strict {
			j.judgeLosses(m)
		}
	}
	return j.verdict
}

type judge struct {
	*History
	ids     map[chanq.ID]string // names
	verdict Verdict
}

func (j *judge) fault(m *message, format string, args ...any) {
	var history strings.Builder
	for _, d := range slices.Concat(m.deliveries, m.late) {
		fmt.Fprintf(&history, "\n    process %d got it at %s, attempt %d, until %s, to %s it: %s", d.process, clock(d.at), d.attempt, clock(d.deadline),
			cmp.Or(string(d.how), "ack"), cmp.Or(string(d.outcome), "no outcome"))
		if at := j.killed[d.process]; at > 0 {
			fmt.Fprintf(&history, "; killed at %s", clock(at))
		}
	}
	j.verdict.Faults = append(j.verdict.Faults, fmt.Sprintf("%s: %s%s", m.name, fmt.Sprintf(format, args...), history.String()))
}

func clock(at int64) string { return time.Unix(0, at).Format("15:04:05.000000") }

func (j *judge) judge(m *message) {
	v := &j.verdict
	if len(m.intents) == 0 {
		j.fault(m, "nobody sent it")
		return
	}
	v.Messages++
	j.judgeIdentity(m)
	if len(m.stored) > 0 {
		v.Stored++
	}
	if len(m.deliveries) == 0 {
		if len(m.stored) > 0 {
			j.fault(m, "LOST: stored, never delivered")
		}
		return
	}
	v.Delivered++
	v.Stale += len(m.late)
	v.Deliveries += len(m.deliveries)
	if len(m.stored) == 0 {
		v.Unsure++
	}
	again := j.storedAgain(m)
	first := 0 // of those of one row
	for i := range m.deliveries {
		if i > first && again > 0 && begins(m.deliveries[i-1], m.deliveries[i]) || i > first && j.repeated(m, i) {
			again--
			v.Duplicates.Again++
			first = i
		} else if i > first {
			j.judgeNext(m, m.deliveries[i-1], m.deliveries[i])
		}
		j.judgeAttempt(m, i, first)
		j.judgeOutcome(m, i)
	}
}

// judgeOutcome checks that a holder learned what became of its lease, and that the
// message went on where it had to.
func (j *judge) judgeOutcome(m *message, i int) {
	d, last := m.deliveries[i], i == len(m.deliveries)-1
	switch {
	case d.outcome == "" && j.killed[d.process] == 0:
		j.fault(m, "process %d was not killed and never knew the outcome of its lease", d.process)
	case d.outcome == Failed:
		j.fault(m, "process %d was told neither an outcome nor that it is unknown", d.process)
	case d.outcome == Lost && last:
		j.fault(m, "LOST: process %d was told that its lease was lost, and nobody got the message after it", d.process)
	case d.outcome == Confirmed && last && !d.ends():
		j.fault(m, "LOST: given back by process %d, and never delivered again", d.process)
	case last && d.final() && d.how == Bury:
		j.verdict.Buried++
	case last && d.final():
		j.verdict.Acked++
	}
}

// judgeIdentity checks that a message kept its ID.
func (j *judge) judgeIdentity(m *message) {
	var id chanq.ID
	check := func(other chanq.ID) {
		switch {
		case other.IsZero(): // the sender does not know it yet
			return
		case id.IsZero():
			id = other
		case id != other:
			j.fault(m, "it has the IDs %s and %s", id, other)
		}
		if name, known := j.ids[other]; known && name != m.name {
			j.fault(m, "its ID %s is that of %s", other, name)
		}
		j.ids[other] = m.name
	}
	for _, s := range slices.Concat(m.intents, m.stored) {
		check(s.id)
	}
	for _, d := range m.deliveries {
		check(d.id)
	}
}

// storedAgain is how often a message may have been stored after its row was
// gone: sends repeated by their sender, or by chanq because an outage hid the
// outcome.
func (j *judge) storedAgain(m *message) int {
	n := len(m.intents) - 1
	for _, sent := range m.intents {
		end := j.end(sent, m.stored)
		for _, o := range j.Outages {
			if o.From < end && o.To > sent.at {
				n++
			}
		}
	}
	return n
}

// end is when a send ended, as far as anybody knows.
func (j *judge) end(sent sending, stored []sending) int64 {
	for _, s := range stored {
		if s.process == sent.process {
			return s.at
		}
	}
	if at := j.killed[sent.process]; at > 0 {
		return at
	}
	return 1 << 62
}

// repeated reports, where connections were broken, that an INSERT whose outcome was
// unknown was repeated after the message had come to its end. Leases that nobody knows of,
// since the answers to their claims did not arrive or their holders died, took their time.
func (j *judge) repeated(m *message, i int) bool {
	before, d := m.deliveries[i-1], m.deliveries[i]
	known := slices.ContainsFunc(m.stored, func(s sending) bool { return s.at <= before.at })
	unseen := time.Duration(d.attempt-1) * j.LeaseFor
	return j.Broken && before.final() && !known && time.Duration(d.at-before.at)+skew >= unseen
}

// begins reports that a delivery is the first of another row: the message was
// consumed, as far as its holder lived to see it, and its attempts count anew.
func begins(before, d delivery) bool {
	return before.final() || before.ends() && d.attempt <= before.attempt
}

// judgeNext judges that a message was delivered again.
func (j *judge) judgeNext(m *message, before, d delivery) {
	why, killed := &j.verdict.Duplicates, j.killed[before.process]
	switch {
	case before.final():
		j.fault(m, "delivered to process %d after its end by process %d was confirmed", d.process, before.process)
	case before.outcome == Confirmed, before.outcome == "" && killed > d.at && !before.ends():
		why.Asked++ // the answer of one that was killed may have died with it
	case before.outcome != "":
		why.Told++
	case killed == 0: // judgeOutcome
	case killed <= d.at:
		why.Killed++
	case j.Strict:
		j.fault(m, "delivered to process %d while process %d held it", d.process, before.process)
	case j.failed(before.at, d.at):
		why.Outage++
	default:
		why.Late++
	}
	least := before.attempt + 1
	switch before.how {
	case Release:
		least-- // it refunds the attempt
	case Nack:
		least = 2 // it counts, and those that were lapses do no more
	}
	if d.attempt < least {
		j.fault(m, "attempt %d follows attempt %d", d.attempt, before.attempt)
	}
	if before.ends() && d.at+int64(skew) < before.deadline {
		j.fault(m, "delivered to process %d at %s, before the lease of process %d could end at %s", d.process, clock(d.at), before.process, clock(before.deadline))
	}
}

// failed reports an outage at a time between two.
func (j *judge) failed(from, to int64) bool {
	return slices.ContainsFunc(j.Outages, func(o Span) bool { return o.From < to && o.To > from })
}

// judgeAttempt judges the attempt that delivery i has, of those of one row from
// first on.
func (j *judge) judgeAttempt(m *message, i, first int) {
	d := m.deliveries[i]
	j.verdict.MostAttempt = max(j.verdict.MostAttempt, d.attempt)
	before, nacks := 0, 0
	for _, e := range m.deliveries[first:i] {
		before = e.attempt
		if e.how == Nack {
			nacks++ // which ends a lease at once
		}
	}
	j.verdict.Unseen += max(0, d.attempt-before-1)
	if d.attempt < 1 {
		j.fault(m, "attempt %d", d.attempt)
	}
	if j.Broken {
		return // nobody knows which claims' answers were
	}
	sent := m.intents[0].at
	if ended := j.ended(m, d, m.deliveries[first:i]); d.attempt > 1+ended {
		j.fault(m, "attempt %d, after %d kills, outages and losses", d.attempt, ended)
	}
	leases := d.attempt - 1 - nacks
	if took, least := time.Duration(d.at-sent), time.Duration(leases)*j.LeaseFor; took+skew < least {
		j.fault(m, "attempt %d came %v after the send: %d leases take %v", d.attempt, took, leases, least)
	}
}

// ended is how many claims of a message can have ended without a settle before a
// delivery. earlier are the deliveries before it.
func (j *judge) ended(m *message, d delivery, earlier []delivery) int {
	sent := m.intents[0].at
	n := len(m.late)
	for process, at := range j.killed {
		if at < sent {
			continue
		}
		// One that was killed only later may have let its lease run out, if it lived for
		// so long.
		started, known := j.started[process]
		if at < d.at || known && d.at-started >= int64(j.LeaseFor) {
			n++
		}
	}
	for _, o := range j.Outages {
		if o.To > sent && o.From < d.at {
			n++
		}
	}
	for _, e := range earlier {
		if e.outcome != "" || e.how == Nack && j.killed[e.process] > d.at {
			n++
		}
	}
	return n
}

// judgeLosses holds that every lease that was lost was stuck itself: somebody had
// locked its row when it ended, or it came so late, over a connection that was
// frozen, that less than half of it was left. Neither a connection that froze with
// a settle or an extension on it explains a loss, nor one that broke, nor a lock
// on another row.
func (j *judge) judgeLosses(m *message) {
	for _, id := range m.known() {
		for _, x := range j.losses[id] {
			// It is told when the end is noticed: by the settle, or by the next extension.
			noticed := Span{x.at - int64(j.LeaseFor), x.at}
			switch {
			case slices.ContainsFunc(j.Locks[id], noticed.meets):
				j.verdict.LostLocked++
			case slices.ContainsFunc(j.slow[x.process], func(claim Span) bool {
				return noticed.meets(Span{claim.To, claim.To}) && slices.ContainsFunc(j.Freezes[x.process], claim.meets)
			}):
				j.verdict.LostSlow++
			default:
				j.fault(m, "process %d lost the lease of attempt %d, and nothing explains it", x.process, x.attempt)
			}
		}
	}
}

// known are the IDs that a message was seen with: one, or it is a fault.
func (m *message) known() (ids []chanq.ID) {
	for _, s := range slices.Concat(m.intents, m.stored) {
		ids = append(ids, s.id)
	}
	for _, d := range slices.Concat(m.deliveries, m.late) {
		ids = append(ids, d.id)
	}
	slices.SortFunc(ids, func(a, b chanq.ID) int { return slices.Compare(a[:], b[:]) })
	return slices.DeleteFunc(slices.Compact(ids), chanq.ID.IsZero)
}
