package keystorm_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq/prove/keyorder"
)

// history is what all processes told. It is for one goroutine at a time.
type history struct {
	sends      map[string][]*send // by key
	deliveries []*delivery
	open       map[leaseOf]*delivery
	latencies  []time.Duration
	faults     []string

	messages, ends, returns, losses, unknowns int // counts
}

// send is some messages of a key, sent together.
type send struct {
	process, first, last int
	at                   int64
	outcome              kind // intended, until it is known
}

// leaseOf names a lease.
type leaseOf struct {
	process int
	number  int64
}

// delivery is a lease in a reader's hands.
type delivery struct {
	process  int
	key      string
	number   int
	from     int64
	deadline int64 // as the reader last knew it
	settling int64 // when he asked for its end; 0: he did not
	how      string
	outcome  kind // of that, "" unless it was told
	heard    int64
}

func newHistory() *history {
	return &history{sends: map[string][]*send{}, open: map[leaseOf]*delivery{}}
}

// add takes down what a process told. What one process tells comes in its order.
func (h *history) add(process int, e event) {
	switch e.Kind {
	case joined, quiet:
	case intended:
		h.messages += e.Last - e.Number + 1
		h.sends[e.Key] = append(h.sends[e.Key], &send{process, e.Number, e.Last, e.At, intended})
	case stored, dropped, unknown, failed:
		if e.Lease != 0 {
			h.conclude(process, e)
			return
		}
		for _, s := range slices.Backward(h.sends[e.Key]) {
			if s.process == process && s.first == e.Number {
				s.outcome = e.Kind
				break
			}
		}
		if e.Kind == failed {
			h.faults = append(h.faults, fmt.Sprintf("process %d, send of %s/%d: %s", process, e.Key, e.Number, e.How))
		}
	case got:
		d := &delivery{process: process, key: e.Key, number: e.Number, from: e.At, deadline: e.Deadline}
		h.deliveries = append(h.deliveries, d)
		h.open[leaseOf{process, e.Lease}] = d
		if e.Took > 0 {
			h.latencies = append(h.latencies, e.Took)
		}
	default:
		h.conclude(process, e)
	}
}

// conclude takes down what came of a lease.
func (h *history) conclude(process int, e event) {
	d := h.open[leaseOf{process, e.Lease}]
	if d == nil {
		h.faults = append(h.faults, fmt.Sprintf("process %d told %s of a lease that it never got", process, e.Kind))
		return
	}
	switch e.Kind {
	case settling:
		d.settling, d.deadline, d.how = e.At, e.Deadline, e.How
		return
	case ended:
		h.ends++
	case returned:
		h.returns++
	case lost:
		h.losses++
	case unknown:
		h.unknowns++
	case failed:
		h.faults = append(h.faults, fmt.Sprintf("process %d, settle of %s/%d: %s", process, e.Key, e.Number, e.How))
	}
	d.outcome, d.heard = e.Kind, e.At
	delete(h.open, leaseOf{process, e.Lease})
}

// next is the number of the next message of each key: all before may have been sent.
func (h *history) next() map[string]int {
	next := map[string]int{}
	for key, sends := range h.sends {
		next[key] = sends[len(sends)-1].last + 1
	}
	return next
}

// Ways to settle that are meant to be the end of a message.
const (
	ack   = "ack"
	ackTx = "ack in a transaction"
	bury  = "bury"
)

// ends: the settle that was asked for was meant to be the end.
func (d *delivery) ends(holds bool) bool {
	return d.how == ack || d.how == ackTx || d.how == bury && !holds
}

// stale: the lease had run out when its reader got it, as one finds that was stopped with it in
// his hand. It counts no more, unless its settle did.
func (d *delivery) stale() bool {
	return d.from >= d.deadline && d.outcome != ended && d.outcome != returned
}

// judge judges a history that has come to its end: the processes have ended, and the queue
// is empty. holds says that a dead message keeps its key closed, and comes again.
func (h *history) judge(holds bool) (v keyorder.Verdict, stale int) {
	sent := map[string]keyorder.Sent{}
	for key, sends := range h.sends {
		s := keyorder.Sent{Unsure: map[int]int{}, Never: map[int]bool{}}
		for _, send := range sends {
			s.Last = send.last
			for n := send.first; n <= send.last; n++ {
				switch send.outcome {
				case stored:
				case dropped:
					s.Never[n] = true
				default:
					s.Unsure[n] = send.last
				}
			}
		}
		sent[key] = s
	}
	var all []keyorder.Handled
	for _, d := range h.deliveries {
		if d.stale() {
			stale++
			continue
		}
		until := d.deadline
		if d.settling > 0 {
			until = min(until, d.settling)
		}
		e := keyorder.Handled{Key: d.key, Number: d.number, From: time.Unix(0, d.from), Until: time.Unix(0, until)}
		if d.ends(holds) {
			e.Ended, e.MayHave = d.outcome == ended, d.outcome == "" || d.outcome == unknown
		}
		if e.Ended {
			e.Heard = time.Unix(0, d.heard)
		}
		all = append(all, e)
	}
	return keyorder.JudgeSent(all, sent), stale
}

// story is what happened to a key, in the order of time.
func (h *history) story(key string) string {
	var b strings.Builder
	for _, s := range h.sends[key] {
		fmt.Fprintf(&b, "\n    %d to %d sent by process %d at %s: %s", s.first, s.last, s.process, clock(s.at), s.outcome)
	}
	of := slices.DeleteFunc(slices.Clone(h.deliveries), func(d *delivery) bool { return d.key != key })
	slices.SortStableFunc(of, func(a, b *delivery) int { return cmp.Compare(a.from, b.from) })
	for _, d := range of {
		fmt.Fprintf(&b, "\n    %d got by process %d at %s (until %s)", d.number, d.process, clock(d.from), clock(d.deadline))
		if d.settling > 0 {
			fmt.Fprintf(&b, ", to %s it at %s: %s", d.how, clock(d.settling), d.outcome)
		} else {
			fmt.Fprintf(&b, ": %s", d.outcome)
		}
	}
	return b.String()
}

func clock(at int64) string { return time.Unix(0, at).Format("15:04:05.000") }
