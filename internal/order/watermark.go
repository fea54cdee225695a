package order

import "time"

// stragglesAfter is how long a sender may stay open before the watermark passes its numbers. Until then each read
// begins below the first number of that sender.
const stragglesAfter = 250 * time.Millisecond

// Watermark computes the number up to which all senders have ended, except stragglers. Each sample is the last number
// drawn and the senders that are open. The database reads the number after the snapshot of a read, and the senders
// after the number. A sender that drew one of these numbers is in the sample, or it has ended before.
//
// It is not safe for concurrent use. The zero value knows nothing.
type Watermark struct {
	ready   int64 // the senders of all numbers up to it had ended at an earlier sample, or are stragglers
	drawn   int64
	sampled bool
	open    map[string]*sender // at the last sample
	pending int64              // becomes ready when waits is empty
	waits   map[string]bool    // senders that had not ended when pending was drawn; nil: nothing is pending
}

// sender is an open sender.
type sender struct {
	bound     int64 // the last number drawn before the sender was first seen; 0: unknown
	since     time.Duration
	straggles bool
}

// Ready returns the number up to which all senders have ended, except stragglers. A read that begins after the sample
// sees all messages up to it.
func (w *Watermark) Ready() int64 { return w.ready }

// Sample takes a sample. renamed reports that a sender of an earlier sample might be open under an unknown name. From is
// the bound of the stragglers that have ended since the last sample: their messages have greater numbers. From is None if
// there are none. forgotten reports that the last number drawn is less than before, so that the database was restored.
func (w *Watermark) Sample(drawn int64, senders []string, renamed bool, now time.Duration) (from int64, forgotten bool) {
	from = None
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
