// Package keyorder checks the events of the consumers of an ordered queue, in any number of processes on one machine:
// whether the messages of each key were delivered in their order, one at a time, and all of them.
package keyorder

import (
	"fmt"
	"slices"
	"time"
)

// Handled is one message while a reader processes it. The messages of a key are numbered from 1 in the order in which
// they were sent.
type Handled struct {
	Key    string
	Number int
	// From is when the reader got it, by the machine's clock, and Until when the reader had finished it, or its lease
	// ended, whichever was first.
	From, Until time.Time
	// Ended: it was acked or dead-lettered, and the reader got that outcome; at Heard, if that is known.
	Ended bool
	Heard time.Time
	// MayHave: its settle would end it, and the outcome is unknown.
	MayHave bool
}

// Sent has the messages sent for a key.
type Sent struct {
	// Last is the number of the last message.
	Last int
	// Unsure has the messages of which it is unknown whether they were stored, or when. The value is the last number that
	// was sent together with the message: later sends might have reached the table before it.
	Unsure map[int]int
	// Never has the messages that were certainly not stored.
	Never map[int]bool
}

// Verdict has the faults that were found.
type Verdict struct {
	// Inversions are messages that were delivered after one that was sent later, Overlaps those that were delivered while
	// another of their key was being processed, Lost those that never ended, and Ghosts those that were delivered although
	// they were never stored, or had ended permanently.
	Inversions, Overlaps, Lost, Ghosts []string
	Repeated                           int // redelivered, which is not a fault
}

// Faults returns the number of faults.
func (v Verdict) Faults() int {
	return len(v.Inversions) + len(v.Overlaps) + len(v.Lost) + len(v.Ghosts)
}

// OK reports whether there were no faults.
func (v Verdict) OK() bool { return v.Faults() == 0 }

func (v Verdict) String() string {
	some := func(what string, all []string) string {
		return fmt.Sprintf("%d %s %q", len(all), what, all[:min(len(all), 5)])
	}
	return fmt.Sprintf("%s, %s, %s, %s, %d repeated", some("inversions", v.Inversions), some("overlaps", v.Overlaps),
		some("lost", v.Lost), some("ghosts", v.Ghosts), v.Repeated)
}

// Judge checks a history, in any order, with the number of sent messages of each key.
func Judge(history []Handled, sent map[string]int) Verdict {
	all := make(map[string]Sent, len(sent))
	for key, n := range sent {
		all[key] = Sent{Last: n}
	}
	return JudgeSent(history, all)
}

// JudgeSent checks a history, in any order, where some sends are not known to have stored their messages.
func JudgeSent(history []Handled, sent map[string]Sent) (v Verdict) {
	keys := map[string][]Handled{}
	for _, h := range history {
		keys[h.Key] = append(keys[h.Key], h)
		if _, known := sent[h.Key]; !known {
			v.Ghosts = append(v.Ghosts, fmt.Sprintf("%s: nothing was sent of it", h.Key))
		}
	}
	for key, s := range sent {
		slices.SortStableFunc(keys[key], func(a, b Handled) int { return a.From.Compare(b.From) })
		k := line{key: key, sent: s, verdict: &v, seen: map[int]fate{}}
		for _, h := range keys[key] {
			k.next(h)
		}
		k.end()
	}
	return v
}

// line has the deliveries of one key so far.
type line struct {
	key     string
	sent    Sent
	verdict *Verdict
	seen    map[int]fate
	highest int
	last    Handled // the one that ends last
}

// fate is what is known of a delivered message.
type fate struct {
	ended, may bool
	heard      time.Time
}

func (k *line) next(h Handled) {
	v := k.verdict
	before, again := k.seen[h.Number]
	switch {
	case h.Number < 1 || h.Number > k.sent.Last || k.sent.Never[h.Number]:
		v.Ghosts = append(v.Ghosts, fmt.Sprintf("%s: %d came, and was never stored", k.key, h.Number))
	case !before.heard.IsZero() && before.heard.Before(h.From):
		v.Ghosts = append(v.Ghosts, fmt.Sprintf("%s: %d came %v after its end", k.key, h.Number, h.From.Sub(before.heard)))
	}
	if later, is := k.overtaken(h.Number); is {
		v.Inversions = append(v.Inversions, fmt.Sprintf("%s: %d after %d, at %s", k.key, h.Number, later, h.From.Format(clock)))
	}
	if again {
		v.Repeated++
	}
	k.highest = max(k.highest, h.Number)
	if h.From.Before(k.last.Until) {
		v.Overlaps = append(v.Overlaps, fmt.Sprintf("%s: %d with %d, for %v, at %s", k.key, h.Number, k.last.Number, k.last.Until.Sub(h.From), h.From.Format(clock)))
	}
	if h.Until.After(k.last.Until) {
		k.last = h
	}
	before.ended, before.may = before.ended || h.Ended, before.may || h.MayHave
	if h.Ended && before.heard.IsZero() {
		before.heard = h.Heard
	}
	k.seen[h.Number] = before
}

const clock = "15:04:05.000"

// overtaken returns a message that was sent later and delivered before, if there is one.
func (k *line) overtaken(number int) (later int, is bool) {
	last, unsure := k.sent.Unsure[number]
	if !unsure {
		return k.highest, k.highest > number
	}
	for later := number + 1; later <= last; later++ {
		if _, came := k.seen[later]; came {
			return later, true
		}
	}
	return 0, false
}

// end checks for missing messages.
func (k *line) end() {
	for i := 1; i <= k.sent.Last; i++ {
		f, came := k.seen[i]
		_, unsure := k.sent.Unsure[i]
		switch {
		case f.ended || f.may || k.sent.Never[i] || unsure && !came:
		case came:
			k.verdict.Lost = append(k.verdict.Lost, fmt.Sprintf("%s: %d of %d", k.key, i, k.sent.Last))
		default:
			k.verdict.Lost = append(k.verdict.Lost, fmt.Sprintf("%s: %d of %d never came", k.key, i, k.sent.Last))
		}
	}
}
