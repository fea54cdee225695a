package keystorm_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/prove/keyorder"
	"github.com/chanq/chanq/prove/kills"
)

// Ways to settle that package kills does not have.
const (
	ackTx  kills.How = "ack in a transaction"
	snooze kills.How = "snooze"
)

// nameOf names a message: the messages of a key are numbered from 1.
func nameOf(key string, number int) string { return fmt.Sprint(key, "/", number) }

func parseName(name string) (key string, number int) {
	key, n, _ := strings.Cut(name, "/")
	number, _ = strconv.Atoi(n)
	return key, number
}

// nextOf returns the number of the next message of each key: all before it might have been sent.
func nextOf(h *kills.History) map[string]int {
	next := map[string]int{}
	for _, name := range h.Names() {
		key, number := parseName(name)
		next[key] = max(next[key], number+1)
	}
	return next
}

// outcome has the outcomes of the deliveries of a history.
type outcome struct {
	keyorder.Verdict
	faults                                                       []string // unexpected failures
	messages, deliveries, stale, ends, returns, losses, unknowns int
}

// ends reports whether the requested settle ends the message.
func ends(d kills.Delivery, holds bool) bool {
	return d.Settling > 0 && (d.How == kills.Ack || d.How == ackTx || d.How == kills.DeadLetter && !holds)
}

// checkHistory checks a complete history: the processes have ended, and the queue is empty. holds means that a dead
// message blocks its key, and is redriven.
func checkHistory(h *kills.History, holds bool) outcome {
	o := outcome{faults: h.Strays, messages: len(h.Messages)}
	sent := sends(h)
	var all []keyorder.Handled
	for _, m := range h.Messages {
		key, number := parseName(m.Name)
		for _, d := range m.Deliveries {
			o.deliveries++
			switch {
			case d.Outcome == kills.Confirmed && ends(d, holds):
				o.ends++
			case d.Outcome == kills.Confirmed:
				o.returns++
			case d.Outcome == kills.Lost:
				o.losses++
			case d.Outcome == kills.Unknown:
				o.unknowns++
			case d.Outcome == kills.Failed:
				o.faults = append(o.faults, fmt.Sprintf("process %d, settle of %s: %s", d.Process, m.Name, d.Error))
			}
			// A process that was stopped receives expired leases. They no longer count, unless their settles did.
			if d.At >= d.Deadline && d.Outcome != kills.Confirmed {
				o.stale++
				continue
			}
			until := d.Deadline
			if d.Settling > 0 {
				until = min(until, d.Settling)
			}
			e := keyorder.Handled{Key: key, Number: number, From: time.Unix(0, d.At), Until: time.Unix(0, until)}
			if ends(d, holds) {
				e.Ended, e.MayHave = d.Outcome == kills.Confirmed, d.Outcome == "" || d.Outcome == kills.Unknown
			}
			if e.Ended && storedBefore(m, d.Heard) {
				e.Heard = time.Unix(0, d.Heard)
			}
			all = append(all, e)
		}
	}
	o.Verdict = keyorder.JudgeSent(all, sent)
	return o
}

// storedBefore reports whether the sender knew by then that the message is stored. Otherwise its INSERT may be repeated after the end of
// the message, which is then stored and delivered again: that is not a ghost.
func storedBefore(m *kills.Message, at int64) bool {
	return slices.ContainsFunc(m.Stored, func(s kills.Sending) bool { return s.At <= at })
}

// sends returns the messages sent for each key.
func sends(h *kills.History) map[string]keyorder.Sent {
	type batch struct { // messages of a key that were sent together
		key     string
		process int
		at      int64
	}
	last := map[batch]int{}
	sent := map[string]keyorder.Sent{}
	for _, m := range h.Messages {
		key, number := parseName(m.Name)
		for _, i := range m.Intents {
			b := batch{key, i.Process, i.At}
			last[b] = max(last[b], number)
			s, known := sent[key]
			if !known {
				s.Unsure, s.Never = map[int]int{}, map[int]bool{}
			}
			s.Last = max(s.Last, number)
			sent[key] = s
		}
	}
	for _, m := range h.Messages {
		key, number := parseName(m.Name)
		for _, i := range m.Intents {
			switch {
			case len(m.Stored) > 0:
			case len(m.Dropped) > 0:
				sent[key].Never[number] = true
			default:
				sent[key].Unsure[number] = last[batch{key, i.Process, i.At}]
			}
		}
	}
	return sent
}

// story returns the events of the messages of a key.
func story(h *kills.History, key string) string {
	var b strings.Builder
	for _, m := range h.Messages { // in about the order in which they were sent
		if of, _ := parseName(m.Name); of == key {
			b.WriteString("\n" + m.Name + h.Story(m))
		}
	}
	return b.String()
}
