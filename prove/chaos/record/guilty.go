package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// A guilty message fails, or makes a statement or its process fail, which must not affect other messages. Its guilt
// is its Message.Type, and the end of its name, by which the judge identifies it.
const (
	Refused     = "refused"     // a trigger refuses its INSERT
	Undeletable = "undeletable" // a trigger refuses the DELETE of its row, at first
	Unreadable  = "unreadable"  // its body cannot be decoded
	Deadly      = "deadly"      // the process that handles it dies
)

// GuiltOf returns the guilt that a name ends with, or "" for an innocent message.
func GuiltOf(name string) string {
	_, guilt, _ := strings.Cut(name, " ")
	return guilt
}

// checkGuilty checks the outcome of a guilty message, and of an innocent one whose send failed.
func (j *checker) checkGuilty(m *Message) {
	guilt := GuiltOf(m.Name)
	switch {
	case guilt == Refused && len(m.Stored)+len(m.Deliveries) > 0,
		len(m.Dropped) > 0 && len(m.Stored) == 0 && len(m.Deliveries) > 0:
		j.fault(m, "it was refused or rolled back, but it was stored")
	case guilt != Refused && m.Refusal != "":
		j.fault(m, "its send failed: %s", m.Refusal)
	case guilt == Unreadable && len(m.Deliveries) > 0:
		j.fault(m, "it was delivered, though its body cannot be decoded")
	}
}

// CheckDead checks the dead-letter table: it has only messages that are guilty of their cause, and messages that a
// process dead-lettered.
func (h *History) CheckDead(dead []chanqadmin.Entry) (errs []error) {
	dies := func(guilt string) bool { return guilt == Unreadable || guilt == Deadly }
	must, may := map[chanq.ID]string{}, map[chanq.ID]bool{}
	for _, m := range h.Messages {
		for _, s := range m.Stored {
			if dies(GuiltOf(m.Name)) {
				must[s.ID] = m.Name
			}
		}
		for _, d := range m.Deliveries {
			may[d.ID] = may[d.ID] || d.How == DeadLetter
		}
	}
	for _, e := range dead {
		delete(must, e.ID)
		if !dies(e.Type) && !may[e.ID] {
			errs = append(errs, fmt.Errorf("an innocent message is dead: %s, attempt %d: %s", e.ID, e.Attempts, e.LastError))
		}
	}
	for id, name := range must {
		errs = append(errs, fmt.Errorf("LOST: %s (%s) is not in the dead table", name, id))
	}
	return errs
}

// LostInARow returns how many deadly messages were delivered, and how many innocent ones lost at most 0, 1, 2, …
// leases in a row. An unconfirmed nack counts as a lost lease.
func (h *History) LostInARow() (fatal int, innocent []int) {
	for _, m := range h.Messages {
		switch most, nacks := 0, 0; {
		case len(m.Deliveries) == 0:
		case GuiltOf(m.Name) == Deadly:
			fatal++
		case GuiltOf(m.Name) == "":
			for _, d := range m.Deliveries {
				most = max(most, d.Attempt-1-nacks)
				if d.How == Nack && d.Outcome == Confirmed {
					nacks++
				}
			}
			innocent = append(innocent, make([]int, max(0, most+1-len(innocent)))...)
			innocent[most]++
		}
	}
	return fatal, innocent
}

// Still returns the longest times until a moment without a send, and without a confirmed settle.
func (h *History) Still(until int64) (sends, settles time.Duration) {
	var stored, settled []int64
	for _, m := range h.Messages {
		for _, s := range m.Stored {
			stored = append(stored, s.At)
		}
		for _, d := range slices.Concat(m.Deliveries, m.late) {
			if d.Outcome == Confirmed {
				settled = append(settled, d.Heard)
			}
		}
	}
	return longest(stored, until), longest(settled, until)
}

// longest returns the longest interval between two of times, up to the moment until.
func longest(times []int64, until int64) (most time.Duration) {
	slices.Sort(times)
	for i, at := range append(times, until) {
		if i > 0 && times[i-1] < until {
			most = max(most, time.Duration(min(at, until)-times[i-1]))
		}
	}
	return most
}
