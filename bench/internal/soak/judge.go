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
}

type totals struct{ sent, stored, delivered, settled int }

type message struct {
	sent       bool  // or about to be
	stored     int64 // when Send returned nil; 0 if it has not
	deliveries []delivery
}

type delivery struct {
	process int
	at      int64
	attempt int
	intent  intent
	ended   int64 // when Wait told the outcome; 0 if it has not
	done    bool  // it was nil
}

func newLedger() *ledger { return &ledger{messages: map[chanq.ID]*message{}} }

func (l *ledger) add(process int, e event) {
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

// verdict counts deliveries by what led to them, and lists what nothing explains.
type verdict struct {
	messages, stored int
	first            int // deliveries
	asked            int // after a nack or release
	killed           int // the holder before was killed
	failed           int // the holder before was told that its settle did not count, or is not known to
	repeated         int // the INSERT was repeated after the message was consumed
	acked, buried    int // confirmed
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
	}
	return v
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
		if before.intent == release {
			least-- // a release refunds the attempt
		}
		switch {
		case before.final() && d.attempt == 1 && (m.stored == 0 || m.stored > before.at):
			v.repeated++
			continue
		case before.final():
			wrong("delivered to process %d after its end by process %d was confirmed", d.process, before.process)
		case before.done:
			v.asked++
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
