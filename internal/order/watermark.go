package order

import (
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// stragglesAfter is how long a sender may stay open before the watermark passes its numbers. Until then each read
// begins below the first number of that sender.
const stragglesAfter = 250 * time.Millisecond

// Watermark computes the number up to which all senders have ended, except stragglers. Each sample is the last number
// drawn and the senders that are open. The database reads the number after the snapshot of a read, and the senders
// after the number. A sender that drew one of these numbers is in the sample, or it has ended before.
//
// It is not safe for concurrent use. The zero value has no sample.
type Watermark struct {
	// Ready is the number up to which all senders have ended, except stragglers. A read that begins after the sample
	// sees all messages up to it.
	Ready int64
	drawn int64
	open  map[string]*sender // at the last sample
}

// sender is an open sender. Its numbers are greater than its bound.
type sender struct {
	bound int64 // the last number drawn before the sender was first seen; 0: unknown
	since time.Duration
}

// Sample adds a sample. sqlbatch.UnknownSender might be any sender of an earlier sample. from is the lowest bound of
// the stragglers that have ended since the last sample, whose messages have greater numbers, or None if there are none.
// forgotten reports that the last number drawn is less than before: the database was restored.
func (w *Watermark) Sample(drawn int64, senders []string, now time.Duration) (from int64, forgotten bool) {
	from = None
	if forgotten = drawn < w.drawn; forgotten {
		*w = Watermark{}
	}
	here := make(map[string]*sender, len(senders))
	for _, name := range senders {
		if here[name] = w.open[name]; here[name] == nil {
			here[name] = &sender{bound: w.drawn, since: now}
		}
	}
	renamed := here[sqlbatch.UnknownSender] != nil
	delete(here, sqlbatch.UnknownSender)
	for name, s := range w.open {
		switch {
		case here[name] != nil:
		case renamed:
			here[name] = s
		case w.Ready > s.bound: // it was a straggler
			from = min(from, s.bound)
		}
	}
	w.open, w.drawn = here, drawn
	ready := drawn
	for _, s := range here {
		if now-s.since <= stragglesAfter {
			ready = min(ready, s.bound)
		}
	}
	w.Ready = max(w.Ready, ready)
	return from, forgotten
}
