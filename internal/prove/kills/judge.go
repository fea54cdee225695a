package kills

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// History is what happened.
type History struct {
	Events []Event
	Kills  []Kill
	// Outages are the times in which the server or the network failed. Whatever was
	// under way then may have an unknown outcome.
	Outages []Outage
	// LeaseFor of all consumers: none of their leases ends sooner by itself.
	LeaseFor time.Duration
}

// Kill is the violent end of a life. At is before the signal was sent.
type Kill struct {
	Life Life
	At   time.Time
}

// Outage is a failure of the server or the network.
type Outage struct{ From, To time.Time }

// Verdict is what the judge found.
type Verdict struct {
	Intended, Stored, Delivered int // messages
	Deliveries                  int // leases that a process wrote down
	Unsure                      int // delivered, though the sender never learned that they were stored
	Duplicates                  Duplicates
	// Unseen is how many claims of a message no process wrote down: those that died
	// with their holder, or with the answer of the server.
	Unseen int
	// Stale is how many leases had run out before a process got them from its
	// buffer: it was told so, and nobody counts them as deliveries.
	Stale       int
	MostAttempt int
	// Faults are broken promises, by message.
	Faults []string
}

// Duplicates counts deliveries of a message after its first, by the reason of
// each.
type Duplicates struct {
	Killed int // the holder was killed before it knew the outcome of its ack
	Told   int // the holder was told that its lease had ended, or the outcome is unknown
	Outage int // an outage kept the holder from knowing, until it was killed
	Late   int // the holder was slower than its lease, and killed before it knew
	Again  int // an INSERT was repeated after the message had been acked
}

func (d Duplicates) total() int { return d.Killed + d.Told + d.Outage + d.Late + d.Again }

func (v Verdict) String() string {
	d := v.Duplicates
	return fmt.Sprintf("%d messages intended, %d stored; %d delivered in %d deliveries, %d of them unconfirmed to their senders; "+
		"%d duplicates: %d of killed holders, %d of holders told of the loss, %d of holders cut off by an outage, %d of late holders, %d stored again; %d claims unseen, %d stale, attempts up to %d; %d broken promises",
		v.Intended, v.Stored, v.Delivered, v.Deliveries, v.Unsure, d.total(), d.Killed, d.Told, d.Outage, d.Late, d.Again, v.Unseen, v.Stale, v.MostAttempt, len(v.Faults))
}

// skew is how far the clocks that wrote times down may be apart: all of one
// machine, but one counts on from its start and others follow corrections.
const skew = 20 * time.Millisecond

// message is all that is known of one message.
type message struct {
	body       string
	intents    []Event
	stored     []Event
	deliveries []delivery
	late       []delivery // that had run out when they were got, and counted no more
}

// delivery is a lease that a process wrote down, and the outcome it wrote down,
// if it came to that.
type delivery struct {
	Event
	outcome Kind
}

// Judge judges a history that has come to its end: producers and consumers have
// ended, and a last consumer has emptied the queue. It finds
//
//   - messages that were stored and never delivered;
//   - messages that nobody sent, or whose ID or body changed;
//   - deliveries after an ack that was confirmed;
//   - holders that were not killed and were never told the outcome of their
//     lease, or were told of a loss that gave the message to nobody: what is
//     delivered twice is thereby explained by a kill or by what the holder knew;
//   - deliveries before the end of the lease that an earlier holder had;
//   - attempts that do not rise, or rise more than kills, outages and losses
//     explain, or faster than leases end.
func Judge(h History) Verdict {
	j := judge{History: h, killed: map[Life]time.Time{}, started: map[Life]time.Time{}, places: map[string]bool{}, ids: map[chanq.ID]string{}}
	for _, k := range h.Kills {
		j.killed[k.Life] = k.At
	}
	for _, m := range j.collect() {
		j.judge(m)
	}
	return j.verdict
}

type judge struct {
	History
	killed  map[Life]time.Time
	started map[Life]time.Time
	places  map[string]bool     // of consumers
	ids     map[chanq.ID]string // bodies
	verdict Verdict
}

func (j *judge) fault(m *message, format string, args ...any) {
	var history strings.Builder
	for _, d := range slices.Concat(m.deliveries, m.late) {
		fmt.Fprintf(&history, "\n    %s got it at %s, attempt %d, until %s: %s", d.Life, clock(d.At), d.Attempt, clock(d.Deadline), cmp.Or(string(d.outcome), "no outcome"))
		if at, dead := j.killed[d.Life]; dead {
			fmt.Fprintf(&history, "; killed at %s", clock(at))
		}
	}
	j.verdict.Faults = append(j.verdict.Faults, fmt.Sprintf("%s: %s%s", m.body, fmt.Sprintf(format, args...), history.String()))
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }

// collect sorts events by message.
func (j *judge) collect() []*message {
	messages := map[string]*message{}
	var list []*message
	open := map[string]int{} // the delivery that an outcome belongs to, by life, body and attempt
	events := slices.Clone(j.Events)
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	for _, e := range events {
		if e.Kind == Started {
			j.started[e.Life] = e.At
			continue
		}
		m := messages[e.Body]
		if m == nil {
			m = &message{body: e.Body}
			messages[e.Body] = m
			list = append(list, m)
		}
		lease := fmt.Sprint(e.Life, e.Body, e.Attempt)
		switch e.Kind {
		case Intended:
			m.intents = append(m.intents, e)
		case Stored:
			m.stored = append(m.stored, e)
		case Got:
			j.places[e.Life.Place] = true
			open[lease] = len(m.deliveries)
			m.deliveries = append(m.deliveries, delivery{Event: e})
		default:
			i, known := open[lease]
			if !known {
				j.fault(m, "%s knows an outcome (%s) of a lease that it never got", e.Life, e.Kind)
				continue
			}
			m.deliveries[i].outcome = e.Kind
		}
	}
	for _, m := range list {
		most := 0
		for _, d := range m.deliveries {
			most = max(most, d.Attempt)
		}
		m.deliveries = slices.DeleteFunc(m.deliveries, func(d delivery) bool {
			late := d.Attempt < most && j.stale(d)
			if late {
				m.late = append(m.late, d)
			}
			return late
		})
	}
	return list
}

// stale reports a lease that had run out when it was got. If another claim
// followed, it counted no more; otherwise its ack may have.
func (j *judge) stale(d delivery) bool {
	_, dead := j.killed[d.Life]
	return !d.Deadline.IsZero() && d.At.After(d.Deadline) && d.outcome != Acked && (d.outcome != "" || dead)
}

func (j *judge) judge(m *message) {
	v := &j.verdict
	if len(m.intents) == 0 {
		j.fault(m, "nobody sent it")
		return
	}
	v.Intended++
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
		if i > first && again > 0 && j.begins(m, i) {
			again--
			v.Duplicates.Again++
			first = i
		} else if i > first {
			j.judgeNext(m, &m.deliveries[i-1], &m.deliveries[i])
		}
		j.judgeAttempt(m, i, first)
		j.judgeOutcome(m, i)
	}
}

// judgeOutcome checks that a holder learned what became of its lease.
func (j *judge) judgeOutcome(m *message, i int) {
	d := m.deliveries[i]
	_, dead := j.killed[d.Life]
	switch {
	case d.outcome == "" && !dead:
		j.fault(m, "%s was not killed and never knew the outcome of its lease", d.Life)
	case d.outcome == Lost && i == len(m.deliveries)-1:
		j.fault(m, "LOST: %s was told that its lease was lost, and nobody got the message after it", d.Life)
	}
}

// judgeIdentity checks that a message kept its ID.
func (j *judge) judgeIdentity(m *message) {
	var id chanq.ID
	check := func(e Event) {
		switch {
		case e.ID.IsZero(): // the sender does not know it yet
			return
		case id.IsZero():
			id = e.ID
		case id != e.ID:
			j.fault(m, "it has the IDs %s and %s", id, e.ID)
		}
		if body, known := j.ids[e.ID]; known && body != m.body {
			j.fault(m, "its ID %s is that of %s", e.ID, body)
		}
		j.ids[e.ID] = m.body
	}
	for _, e := range slices.Concat(m.intents, m.stored) {
		check(e)
	}
	for _, d := range m.deliveries {
		check(d.Event)
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
			if o.From.Before(end) && o.To.After(sent.At) {
				n++
			}
		}
	}
	return n
}

// end is when a send ended, as far as anybody knows.
func (j *judge) end(sent Event, stored []Event) time.Time {
	for _, e := range stored {
		if e.Life == sent.Life {
			return e.At
		}
	}
	if at, dead := j.killed[sent.Life]; dead {
		return at
	}
	return time.Unix(1<<40, 0)
}

// begins reports that a delivery is the first of another row: the message was
// acked, as far as its holder lived to see it, and its attempts count anew.
func (j *judge) begins(m *message, i int) bool {
	before, d := m.deliveries[i-1], m.deliveries[i]
	return before.outcome == Acked || d.Attempt <= before.Attempt
}

// judgeNext judges that a message was delivered again.
func (j *judge) judgeNext(m *message, before, d *delivery) {
	why := &j.verdict.Duplicates
	killed, dead := j.killed[before.Life]
	switch {
	case before.outcome == Acked:
		j.fault(m, "delivered to %s after the ack of %s was confirmed", d.Life, before.Life)
	case before.outcome != "":
		why.Told++
	case !dead: // judgeOutcome
	case killed.Before(d.At):
		why.Killed++
	case j.failed(before.At, d.At):
		why.Outage++
	default:
		why.Late++
	}
	if d.Attempt <= before.Attempt {
		j.fault(m, "attempt %d follows attempt %d", d.Attempt, before.Attempt)
	}
	if d.At.Add(skew).Before(before.Deadline) {
		j.fault(m, "delivered to %s at %s, before the lease of %s could end at %s", d.Life, clock(d.At), before.Life, clock(before.Deadline))
	}
}

// failed reports an outage at a time between two.
func (j *judge) failed(from, to time.Time) bool {
	return slices.ContainsFunc(j.Outages, func(o Outage) bool { return o.From.Before(to) && o.To.After(from) })
}

// judgeAttempt judges the attempt that delivery i has, of those of one row from
// first on.
func (j *judge) judgeAttempt(m *message, i, first int) {
	d := m.deliveries[i]
	j.verdict.MostAttempt = max(j.verdict.MostAttempt, d.Attempt)
	before := 0
	if i > first {
		before = m.deliveries[i-1].Attempt
	}
	j.verdict.Unseen += max(0, d.Attempt-before-1)
	if d.Attempt < 1 {
		j.fault(m, "attempt %d", d.Attempt)
	}
	sent := m.intents[0].At
	if ended := j.ended(m, d, m.deliveries[first:i]); d.Attempt > 1+ended {
		j.fault(m, "attempt %d, after %d kills, outages and losses", d.Attempt, ended)
	}
	if least := time.Duration(d.Attempt-1) * j.LeaseFor; d.At.Sub(sent)+skew < least {
		j.fault(m, "attempt %d came %v after the send: %d leases take %v", d.Attempt, d.At.Sub(sent), d.Attempt-1, least)
	}
}

// ended is how many claims of a message can have ended without a settle before a
// delivery. earlier are the deliveries before it.
func (j *judge) ended(m *message, d delivery, earlier []delivery) int {
	sent := m.intents[0].At
	n := len(m.late)
	for life, at := range j.killed {
		if !j.places[life.Place] || at.Before(sent) {
			continue
		}
		started, known := j.started[life]
		// One that was killed only later may have let its lease run out, if it lived for
		// so long.
		if at.Before(d.At) || known && d.At.Sub(started) >= j.LeaseFor {
			n++
		}
	}
	for _, o := range j.Outages {
		if o.To.After(sent) && o.From.Before(d.At) {
			n++
		}
	}
	for _, e := range earlier {
		if e.outcome != "" {
			n++
		}
	}
	return n
}
