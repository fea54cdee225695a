package kills

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq"
)

// History is what happened: what the processes told, and what was done to them.
// It is for one goroutine at a time.
type History struct {
	// LeaseFor of all consumers: none of their leases ends sooner by itself.
	LeaseFor time.Duration
	// Strict holds that each lease that was lost was stuck itself (Locks, Freezes).
	// Without it a loaded machine may have kept a holder waiting.
	Strict bool
	// Broken says that the processes broke their own connections at times that
	// nobody wrote down: any statement may have an unknown outcome.
	Broken bool
	// Outages are the times in which the server or the network failed. Whatever was
	// under way then may have an unknown outcome.
	Outages []Span
	Locks   map[chanq.ID][]Span // rows that somebody else had locked
	Freezes map[int][]Span      // frozen connections, by process

	Sent, Stored, Received, Settled int             // so far
	Latencies                       []time.Duration // of first deliveries

	names    map[string]*message
	messages []*message // as they were first heard of
	losses   map[chanq.ID][]loss
	slow     map[int][]Span // claims, by process
	killed   map[int]int64
	started  map[int]int64
	strays   []string // what contradicts itself at first sight
}

// Span is a stretch of time, in Unix nanoseconds.
type Span struct{ From, To int64 }

func (s Span) meets(o Span) bool { return s.From <= o.To && o.From <= s.To }

// message is all that is known of one message.
type message struct {
	name       string
	intents    []sending
	stored     []sending
	deliveries []delivery
	late       []delivery // that had run out when they were got, and counted no more
}

type sending struct {
	process int
	at      int64
	id      chanq.ID // zero if it is not known yet
}

// delivery is a lease that a process got, and the outcome that it told, if it came
// to that.
type delivery struct {
	process      int
	at, deadline int64
	attempt      int
	how          How
	id           chanq.ID
	outcome      Kind
}

// loss is the end of a lease that its process held, in the buffer or a handler.
type loss struct {
	process, attempt int
	at               int64
}

// NewHistory begins one.
func NewHistory(leaseFor time.Duration) *History {
	return &History{
		LeaseFor: leaseFor, Locks: map[chanq.ID][]Span{}, Freezes: map[int][]Span{},
		names: map[string]*message{}, losses: map[chanq.ID][]loss{}, slow: map[int][]Span{}, killed: map[int]int64{}, started: map[int]int64{},
	}
}

// Kill takes down the violent end of a process, before the signal is sent.
func (h *History) Kill(process int) { h.killed[process] = now() }

// Kills is how many there were.
func (h *History) Kills() int { return len(h.killed) }

// Add takes down what a process told. What one process tells comes in its order;
// what several tell may come in any.
func (h *History) Add(process int, e Event) {
	switch e.Kind {
	case Started:
		h.started[process] = e.At
		return
	case Slow:
		h.slow[process] = append(h.slow[process], Span{e.At - int64(e.Took), e.At})
		return
	case Ended:
		h.losses[e.ID] = append(h.losses[e.ID], loss{process, e.Attempt, e.At})
		return
	}
	m := h.names[e.Name]
	if m == nil {
		m = &message{name: e.Name}
		h.names[e.Name], h.messages = m, append(h.messages, m)
	}
	switch e.Kind {
	case Intended:
		h.Sent++
		m.intents = append(m.intents, sending{process, e.At, e.ID})
	case Stored:
		h.Stored++
		m.stored = append(m.stored, sending{process, e.At, e.ID})
	case Got:
		h.Received++
		m.deliveries = append(m.deliveries, delivery{process: process, at: e.At, deadline: e.Deadline, attempt: e.Attempt, how: e.How, id: e.ID})
		if e.Latency > 0 {
			h.Latencies = append(h.Latencies, e.Latency)
		}
	default:
		for i := range m.deliveries {
			if d := &m.deliveries[i]; d.process == process && d.attempt == e.Attempt && d.outcome == "" {
				d.outcome = e.Kind
				h.Settled++
				return
			}
		}
		h.strays = append(h.strays, fmt.Sprintf("%s: process %d knows an outcome (%s) of a lease that it never got", e.Name, process, e.Kind))
	}
}

// Unfinished are the messages with a chosen ID that a process meant to send and is
// not known to have stored: its successor sends them again.
func (h *History) Unfinished(process int) (again []Again) {
	of := func(s sending) bool { return s.process == process }
	for _, m := range h.messages {
		if i := slices.IndexFunc(m.intents, of); i >= 0 && !m.intents[i].id.IsZero() && !slices.ContainsFunc(m.stored, of) {
			again = append(again, Again{m.name, m.intents[i].id})
		}
	}
	return again
}

// Again is a message to be sent again.
type Again struct {
	Name string
	ID   chanq.ID
}

// arrange brings what several processes told into the order of time, and takes out
// the deliveries that had run out when they were got.
func (h *History) arrange(m *message) {
	slices.SortStableFunc(m.intents, func(a, b sending) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(m.deliveries, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	most := 0
	for _, d := range m.deliveries {
		most = max(most, d.attempt)
	}
	var counted []delivery
	m.late = nil
	for _, d := range m.deliveries {
		if d.attempt < most && h.stale(d) {
			m.late = append(m.late, d)
		} else {
			counted = append(counted, d)
		}
	}
	m.deliveries = counted
}

// stale reports a lease that had run out when it was got. If another claim
// followed, it counted no more; otherwise its settle may have.
func (h *History) stale(d delivery) bool {
	return d.deadline > 0 && d.at > d.deadline && d.outcome != Confirmed && (d.outcome != "" || h.killed[d.process] > 0)
}

// final is a delivery that is known to be the last.
func (d delivery) final() bool { return d.outcome == Confirmed && d.ends() }

// ends: its settle is meant to be the last.
func (d delivery) ends() bool { return d.how == Ack || d.how == Bury }
