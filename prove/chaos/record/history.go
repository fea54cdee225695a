package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq"
)

// History has the events of the processes, and the faults injected into them. Any goroutine may call its methods; the
// checker reads it when all processes have ended.
type History struct {
	// LeaseFor of all consumers: no lease expires earlier.
	LeaseFor time.Duration
	// Strict requires that each lost lease was blocked itself (Locks, Freezes). Without it a loaded machine might have
	// delayed a holder.
	Strict bool
	// Broken reports whether the processes broke their own connections at times that were not recorded: any statement
	// might have an unknown outcome.
	Broken bool
	// Ordered: messages are named by NameOf, and those of a key must be delivered in the order of their numbers, one
	// at a time.
	Ordered bool
	// Outages are the times in which the server or the network failed. Statements in progress then might have an
	// unknown outcome.
	Outages []Span
	Locks   map[chanq.ID][]Span // rows that another transaction had locked; of the zero ID: the whole database
	Freezes map[int][]Span      // frozen connections, by process

	Messages []*Message // in the order of their first events
	Strays   []string   // contradictions that are visible at once, and sends that failed

	mu        sync.Mutex // guards all fields except the settings, while processes run
	so        Totals     // of the counts, those of events
	latencies []time.Duration
	names     map[string]*Message
	losses    map[chanq.ID][]loss
	slow      map[int][]Span // claims, by process
	killed    map[int]int64
	reached   map[state]int64
	weighed   map[int]Usage
	dying     []int // processes that handle a deadly message
}

// state is a state that a process has reached.
type state struct {
	process int
	kind    Kind
}

// Totals counts what all processes did so far, and the faults injected into them.
type Totals struct {
	Sent, Stored, Delivered, Settled int
	Kills, Frozen, Locked            int
	Faults                           int64
}

// Span is a time range, in Unix nanoseconds.
type Span struct{ From, To int64 }

func (s Span) meets(o Span) bool { return s.From <= o.To && o.From <= s.To }

// Message has all events of one message.
type Message struct {
	Name                     string
	Intents, Stored, Dropped []Sending
	Refusal                  string // why a send of it was Dropped
	Deliveries               []Delivery
	late                     []Delivery // leases that had expired when they were received, and no longer counted
}

// Sending is one send of a message, or its outcome.
type Sending struct {
	Process int
	At      int64
	ID      chanq.ID // zero if it is not known yet
}

// Delivery is a lease that a process got, and the outcome that it reported, if any.
type Delivery struct {
	Process      int
	At, Deadline int64
	Attempt      int
	Lease        int64
	ID           chanq.ID
	How          How
	Settling     int64 // when the process began to settle it in the way How
	Outcome      Kind
	Heard        int64  // when the process reported Outcome
	Error        string // of the outcome Failed
	row          int    // how often the message had been stored again, as the judge found
}

// loss is the end of a lease that its process held, in the buffer or a handler.
type loss struct {
	Process, Attempt int
	At               int64
}

// NewHistory returns an empty history.
func NewHistory(leaseFor time.Duration) *History {
	return &History{
		LeaseFor: leaseFor, Locks: map[chanq.ID][]Span{}, Freezes: map[int][]Span{},
		names: map[string]*Message{}, losses: map[chanq.ID][]loss{}, slow: map[int][]Span{},
		killed: map[int]int64{}, reached: map[state]int64{}, weighed: map[int]Usage{},
	}
}

// Kill records that a process is killed, before the signal is sent.
func (h *History) Kill(process int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.killed[process] = Now()
}

// Outage records an outage that begins now, and ends when ended is called.
func (h *History) Outage() (ended func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.Outages)
	h.Outages = append(h.Outages, Span{Now(), 1 << 62})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.Outages[n].To = Now()
	}
}

// Froze and Locked record a connection that was frozen, and a row that was locked, until now.
func (h *History) Froze(process int, from int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Freezes[process] = append(h.Freezes[process], Span{from, Now()})
}

func (h *History) Locked(id chanq.ID, from int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Locks[id] = append(h.Locks[id], Span{from, Now()})
}

// Hear adds an event of a process.
func (h *History) Hear(process int, line string) error {
	var e Event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return fmt.Errorf("line %q: %w", line, err)
	}
	h.Add(process, e)
	return nil
}

// Add records an event of a process. The events of one process are added in their order; those of several processes in
// any order.
func (h *History) Add(process int, e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Kind {
	case Dying:
		h.dying = append(h.dying, process)
	case Started, Quiet:
		h.reached[state{process, e.Kind}] = e.At
	case Weighed:
		h.weighed[process] = e.Usage
	case Slow:
		h.slow[process] = append(h.slow[process], Span{e.At - int64(e.Took), e.At})
	case Ended:
		h.losses[e.ID] = append(h.losses[e.ID], loss{process, e.Attempt, e.At})
	default:
		m := h.names[e.Name]
		if m == nil {
			m = &Message{Name: e.Name}
			h.names[e.Name], h.Messages = m, append(h.Messages, m)
		}
		h.addTo(m, process, e)
	}
}

func (h *History) addTo(m *Message, process int, e Event) {
	switch e.Kind {
	case Intended:
		h.so.Sent++
		m.Intents = append(m.Intents, Sending{process, e.At, e.ID})
		return
	case Stored:
		h.so.Stored++
		m.Stored = append(m.Stored, Sending{process, e.At, e.ID})
		return
	case Dropped:
		m.Dropped = append(m.Dropped, Sending{process, e.At, e.ID})
		m.Refusal = e.Error
		return
	case Got:
		h.so.Delivered++
		m.Deliveries = append(m.Deliveries, Delivery{
			Process: process, At: e.At, Deadline: e.Deadline, Attempt: e.Attempt, Lease: e.Lease, ID: e.ID,
		})
		if e.Latency > 0 {
			h.latencies = append(h.latencies, e.Latency)
		}
		return
	}
	i := slices.IndexFunc(m.Deliveries, func(d Delivery) bool {
		return d.Process == process && d.Attempt == e.Attempt && d.Lease == e.Lease && d.Outcome == ""
	})
	switch {
	case i >= 0 && e.Kind == Settling:
		d := &m.Deliveries[i]
		d.Settling, d.Deadline, d.How = e.At, e.Deadline, e.How
	case i >= 0:
		h.so.Settled++
		d := &m.Deliveries[i]
		d.Outcome, d.Heard, d.Error = e.Kind, e.At, e.Error
	case e.Attempt > 0:
		h.Strays = append(h.Strays, fmt.Sprintf("%s: process %d knows an outcome (%s) of a lease that it never got", e.Name, process, e.Kind))
	case e.Kind != Unknown:
		h.Strays = append(h.Strays, fmt.Sprintf("%s: process %d could not send it: %s", e.Name, process, e.Error))
	}
}

// Unfinished returns the messages with a chosen ID that a process intended to send and is not known to have stored: its
// successor sends them again.
func (h *History) Unfinished(process int) (again []Again) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := func(s Sending) bool { return s.Process == process }
	for _, m := range h.Messages {
		if i := slices.IndexFunc(m.Intents, of); i >= 0 && !m.Intents[i].ID.IsZero() && !slices.ContainsFunc(m.Stored, of) {
			again = append(again, Again{m.Name, m.Intents[i].ID})
		}
	}
	return again
}

// Again is a message to be sent again.
type Again struct {
	Name string
	ID   chanq.ID
}

// Next returns the number of the next message of each key: all before it might have been sent.
func (h *History) Next() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := map[string]int{}
	for _, m := range h.Messages {
		key, number := ParseName(m.Name)
		next[key] = max(next[key], number+1)
	}
	return next
}

// Reported reports whether a process has reported a state: that it is Started, or Quiet.
func (h *History) Reported(process int, kind Kind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reached[state{process, kind}] > 0
}

// TakeDying returns the processes that began to handle a deadly message since the last call.
func (h *History) TakeDying() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	dying := h.dying
	h.dying = nil
	return dying
}

// Latencies returns the latencies of the first deliveries so far.
func (h *History) Latencies() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.latencies)
}

// Totals counts the events so far, and returns the resource usage of a process.
func (h *History) Totals(process int) (Totals, Usage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.so
	t.Kills = len(h.killed)
	for _, w := range h.weighed {
		t.Faults += w.Faults
		t.Frozen += int(w.Freezes)
	}
	for _, spans := range h.Freezes {
		t.Frozen += len(spans)
	}
	for _, spans := range h.Locks {
		t.Locked += len(spans)
	}
	return t, h.weighed[process]
}

// arrange sorts the events of several processes by time, and removes the deliveries that had expired when they were
// received.
func (h *History) arrange(m *Message) {
	slices.SortStableFunc(m.Intents, func(a, b Sending) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(m.Deliveries, func(a, b Delivery) int { return cmp.Compare(a.At, b.At) })
	var counted []Delivery
	m.late = nil
	for _, d := range m.Deliveries {
		// If another claim followed its end, it no longer counted; otherwise its settle might have.
		follows := func(o Delivery) bool { return !h.stale(o) && o.At+int64(skew) > d.Deadline }
		if h.stale(d) && slices.ContainsFunc(m.Deliveries, follows) {
			m.late = append(m.late, d)
		} else {
			counted = append(counted, d)
		}
	}
	m.Deliveries = counted
}

// stale reports whether a lease had expired when it was received.
func (h *History) stale(d Delivery) bool {
	return d.Deadline > 0 && d.At > d.Deadline && d.Outcome != Confirmed && (d.Outcome != "" || h.killed[d.Process] > 0)
}

// final reports whether a delivery is known to be the last.
func (d Delivery) final() bool { return d.Outcome == Confirmed && d.ends() }

// ends reports whether its holder meant to end the message, and asks, whether it meant to get it again.
func (d Delivery) ends() bool { return d.How == Ack || d.How == AckTx || d.How == DeadLetter }
func (d Delivery) asks() bool { return d.How != "" && !d.ends() }
