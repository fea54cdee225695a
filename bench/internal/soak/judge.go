package soak

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chanq/chanq"
)

// ledger is what the workers told, message by message.
type ledger struct {
	messages  map[chanq.ID]*message
	latencies []int64 // nanoseconds from due to delivered, of first deliveries
	totals    totals
	strays    []string // what contradicts itself at first sight

	locks   map[chanq.ID][]span
	freezes map[int][]span // by process
	late    map[int][]span // claims that took long, by process
	waits   int            // times that every writer was kept waiting
}

// span is a stretch of time, in Unix nanoseconds.
type span struct{ from, to int64 }

func (s span) meets(o span) bool { return s.from <= o.to && o.from <= s.to }

type totals struct{ sent, stored, delivered, settled int }

type message struct {
	sent       bool  // or about to be
	stored     int64 // when Send returned nil; 0 if it has not
	deliveries []delivery
	losses     []loss
}

// loss is the end of a lease that its process held, in the buffer or a handler.
type loss struct {
	process, attempt int
	at               int64
}

type delivery struct {
	process int
	at      int64
	attempt int
	intent  intent
	ended   int64 // when Wait told the outcome; 0 if it has not
	done    bool  // it was nil
}

func newLedger() *ledger {
	return &ledger{messages: map[chanq.ID]*message{}, locks: map[chanq.ID][]span{}, freezes: map[int][]span{}, late: map[int][]span{}}
}

func (l *ledger) add(process int, e event) {
	if e.kind == late {
		l.late[process] = append(l.late[process], span{e.at - e.took, e.at})
		return
	}
	m := l.messages[e.id]
	if m == nil { // the first word may be the receiver's: each process has a reader of its own
		m = &message{}
		l.messages[e.id] = m
	}
	switch e.kind {
	case sending:
		l.totals.sent++
		m.sent = true
	case stored:
		l.totals.stored++
		m.stored = e.at
	case delivered:
		l.totals.delivered++
		m.deliveries = append(m.deliveries, delivery{process: process, at: e.at, attempt: e.attempt, intent: e.intent})
		if e.latency >= 0 {
			l.latencies = append(l.latencies, e.latency)
		}
	case lost:
		m.losses = append(m.losses, loss{process, e.attempt, e.at})
	case confirmed, refused:
		for i := range m.deliveries {
			d := &m.deliveries[i]
			if d.process == process && d.attempt == e.attempt && d.ended == 0 {
				d.ended, d.done = e.at, e.kind == confirmed
				l.totals.settled++
				return
			}
		}
		l.strays = append(l.strays, fmt.Sprintf("%s: process %d settled what it was not given", e.id, process))
	}
}

// locked is how often something was locked.
func (l *ledger) locked() int {
	n := l.waits
	for _, spans := range l.locks {
		n += len(spans)
	}
	return n
}

// verdict counts deliveries by what led to them, and lists what nothing explains.
type verdict struct {
	messages, stored int
	first            int // deliveries
	asked            int // after a nack or release
	killed           int // the holder before was killed
	failed           int // the holder before was told that its settle did not count, or is not known to
	repeated         int // the INSERT was repeated after the message was consumed
	acked, buried    int // confirmed
	lostLocked       int // leases lost whose row somebody had locked
	lostLate         int // and whose claim's answer a frozen connection held back
	broken           []string
}

// judge judges each message by itself; killed is when each process was killed.
func (l *ledger) judge(killed []int64) verdict {
	v := verdict{broken: l.strays}
	ids := make([]chanq.ID, 0, len(l.messages))
	for id := range l.messages {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b chanq.ID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range ids {
		v.message(id, l.messages[id], killed)
		v.losses(id, l.messages[id], l)
	}
	return v
}

// losses holds that every lease that was lost was stuck itself: somebody had
// locked its row when it ended, or it came so late, over a connection that was
// frozen, that less than half of it was left. Neither a connection that froze with
// a settle or an extension on it explains a loss, nor one that broke, nor a lock
// on another row.
func (v *verdict) losses(id chanq.ID, m *message, l *ledger) {
	for _, x := range m.losses {
		// It is told when the end is noticed: by the settle, or by the next extension.
		noticed := span{x.at - int64(leaseFor), x.at}
		switch {
		case slices.ContainsFunc(l.locks[id], noticed.meets):
			v.lostLocked++
		case slices.ContainsFunc(l.late[x.process], func(claim span) bool {
			return noticed.meets(span{claim.to, claim.to}) && slices.ContainsFunc(l.freezes[x.process], claim.meets)
		}):
			v.lostLate++
		default:
			v.broken = append(v.broken, fmt.Sprintf("%s: process %d lost the lease of attempt %d, and nothing explains it", id, x.process, x.attempt))
		}
	}
}

func (v *verdict) message(id chanq.ID, m *message, killed []int64) {
	wrong := func(format string, args ...any) {
		v.broken = append(v.broken, fmt.Sprintf("%s: ", id)+fmt.Sprintf(format, args...))
	}
	v.messages++
	if !m.sent {
		wrong("delivered, and never sent")
	}
	if m.stored > 0 {
		v.stored++
	}
	if len(m.deliveries) == 0 {
		if m.stored > 0 {
			wrong("LOST: stored, and never delivered")
		}
		return
	}
	slices.SortFunc(m.deliveries, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	v.first++
	for i, d := range m.deliveries[1:] {
		before := m.deliveries[i]
		least := before.attempt + 1
		switch before.intent {
		case release:
			least-- // it refunds the attempt
		case nack:
			least = 2 // it counts, and those that were lapses do no more
		}
		switch {
		case before.final() && d.attempt == 1 && (m.stored == 0 || m.stored > before.at):
			v.repeated++
			continue
		case before.final():
			wrong("delivered to process %d after its end by process %d was confirmed", d.process, before.process)
		case before.done, before.ended == 0 && killed[before.process] > d.at && (before.intent == nack || before.intent == release):
			v.asked++ // the answer of one that was killed may have died with it
		case killed[before.process] > before.at && killed[before.process] <= d.at:
			v.killed++
		case before.ended > 0:
			v.failed++
		default:
			wrong("delivered to process %d while process %d held it", d.process, before.process)
		}
		if d.attempt < least {
			wrong("attempt %d follows attempt %d", d.attempt, before.attempt)
		}
	}
	switch last := m.deliveries[len(m.deliveries)-1]; {
	case last.final() && last.intent == bury:
		v.buried++
	case last.final():
		v.acked++
	case last.done:
		wrong("LOST: given back by process %d, and never delivered again", last.process)
	case last.ended == 0 && killed[last.process] == 0:
		wrong("process %d never learned what became of its settle", last.process)
	}
}

// final is a delivery that is known to be the last.
func (d delivery) final() bool { return d.done && (d.intent == ack || d.intent == bury) }
