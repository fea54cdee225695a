package order

import (
	"math"
	"time"
)

// stragglesAfter is how long a sender may be open before the watermark passes its numbers.
const stragglesAfter = 250 * time.Millisecond

// Watermark knows up to which number each message was visible to every snapshot that is taken from now on,
// except those of stragglers: senders that have been open for long. It is told the last number drawn
// and, sampled after that, the senders that are open. A sender that drew one of these numbers is among
// them, or has committed before.
//
// It is not safe for concurrent use. The zero value knows nothing.
type Watermark struct {
	ready   int64 // the senders of all numbers up to it had ended at an earlier sample, or are stragglers
	drawn   int64
	sampled bool
	open    map[string]*sender // at the last sample
	pending int64              // becomes ready when the senders that are waited for have ended
	waits   map[string]bool    // nil: nothing is pending
}

// sender is one that is open.
type sender struct {
	bound     int64 // the last number that was drawn before the sender was first seen
	since     time.Duration
	straggles bool
}

// Ready is the number up to which all senders have ended. A read that begins later sees all up to it.
func (w *Watermark) Ready() int64 { return w.ready }

// Sample takes a sample. renamed says that some sender that was seen before may be open under a name that is
// not known. It returns from which number on messages of stragglers may have appeared that have ended since
// (math.MaxInt64: of none), and whether the database has forgotten numbers that it had drawn.
func (w *Watermark) Sample(drawn int64, senders []string, renamed bool, now time.Duration) (from int64, forgotten bool) {
	from = math.MaxInt64
	if w.sampled && drawn < w.drawn {
		*w = Watermark{}
		forgotten = true
	}
	here := make(map[string]*sender, len(senders))
	for _, name := range senders {
		s := w.open[name]
		if s == nil {
			s = &sender{since: now}
			if w.sampled {
				s.bound = w.drawn
			}
		}
		here[name] = s
	}
	for name, s := range w.open {
		switch {
		case here[name] != nil:
		case renamed:
			here[name] = s
		case s.straggles:
			from = min(from, s.bound)
		}
	}
	w.open, w.drawn, w.sampled = here, drawn, true
	for name := range w.waits {
		if here[name] == nil {
			delete(w.waits, name)
		}
	}
	for name, s := range here {
		if !s.straggles && now-s.since > stragglesAfter {
			s.straggles = true
			delete(w.waits, name)
		}
	}
	w.advance()
	if w.waits == nil {
		w.pending, w.waits = drawn, map[string]bool{}
		for name, s := range here {
			if !s.straggles {
				w.waits[name] = true
			}
		}
		w.advance()
	}
	return from, forgotten
}

func (w *Watermark) advance() {
	if w.waits != nil && len(w.waits) == 0 {
		w.ready, w.waits = max(w.ready, w.pending), nil
	}
}
