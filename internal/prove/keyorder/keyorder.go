// Package keyorder judges what the consumers of an ordered queue did, of any number of
// processes on one machine: whether each key's messages came in their order, one at a time,
// and all of them.
package keyorder

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Handled is one message in the hands of a reader. The messages of a key are numbered from
// 1 in the order in which they were sent.
type Handled struct {
	Key    string
	Number int
	// From is when the reader got it, by the machine's clock, and Until when he was done with
	// it, or his lease ended, if that was sooner.
	From, Until time.Time
	// Ended: it was acked, or set aside as dead, and the reader heard so.
	Ended bool
}

// Verdict is what was wrong.
type Verdict struct {
	// Inversions are messages that came after one that was sent later, Overlaps those that
	// came while another of their key was in somebody's hands, and Lost those that never
	// ended.
	Inversions, Overlaps, Lost []string
	Repeated                   int // came again, which is no fault
}

// OK reports that nothing was.
func (v Verdict) OK() bool { return len(v.Inversions)+len(v.Overlaps)+len(v.Lost) == 0 }

func (v Verdict) String() string {
	some := func(what string, all []string) string {
		return fmt.Sprintf("%d %s %q", len(all), what, all[:min(len(all), 5)])
	}
	return fmt.Sprintf("%s, %s, %s, %d repeated", some("inversions", v.Inversions), some("overlaps", v.Overlaps), some("lost", v.Lost), v.Repeated)
}

// Judge judges a history, in any order, of so many messages sent of each key.
func Judge(history []Handled, sent map[string]int) (v Verdict) {
	keys := map[string][]Handled{}
	for _, h := range history {
		keys[h.Key] = append(keys[h.Key], h)
	}
	for key, n := range sent {
		all := keys[key]
		slices.SortStableFunc(all, func(a, b Handled) int { return a.From.Compare(b.From) })
		ended := map[int]bool{}
		highest, last := 0, Handled{}
		for _, h := range all {
			if h.Number < highest {
				v.Inversions = append(v.Inversions, fmt.Sprintf("%s: %d after %d", key, h.Number, highest))
			}
			if h.Number == highest {
				v.Repeated++
			}
			highest = max(highest, h.Number)
			if h.From.Before(last.Until) {
				v.Overlaps = append(v.Overlaps, fmt.Sprintf("%s: %d beside %d, for %v", key, h.Number, last.Number, last.Until.Sub(h.From)))
			}
			if cmp.Compare(h.Until.UnixNano(), last.Until.UnixNano()) > 0 {
				last = h
			}
			ended[h.Number] = ended[h.Number] || h.Ended
		}
		for i := 1; i <= n; i++ {
			// An ack whose outcome its reader never heard of is one if a later one came.
			if !ended[i] && (i > highest || i == highest) {
				v.Lost = append(v.Lost, fmt.Sprintf("%s: %d of %d", key, i, n))
			} else if !slices.ContainsFunc(all, func(h Handled) bool { return h.Number == i }) {
				v.Lost = append(v.Lost, fmt.Sprintf("%s: %d of %d never came", key, i, n))
			}
		}
	}
	return v
}
