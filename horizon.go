package chanq

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// The horizon of an ordered queue: up to where no message can appear any more.
//
// A send draws its number, and commits later: maybe after messages with greater numbers
// were claimed. Once it has committed, the same caller may send another message of the
// same key. A claim that began to read behind the first, at the mark of what was
// claimed before, would find the second alone. So claims begin no later than at the
// horizon: whatever lies up to there, and will ever be in the table, is seen by every claim
// from now on.
//
// Each sender has himself noted before he draws, until his transaction has ended (on
// PostgreSQL by a lock that all senders share). A sample reads the last number drawn,
// and then who is noted. Whoever drew a number up to that one is among these, or has
// committed before. So the number becomes the horizon once a later sample sees none of
// them any more.

// horizonEvery is the least time from one sample to the next.
const horizonEvery = 200 * time.Millisecond

// mostSamples is how many samples wait for the end of their senders at most. Those
// between are left out: the horizon then goes further in greater steps.
const mostSamples = 16

// lastPlace is behind all messages.
const lastPlace = math.MaxInt64

// horizon is that of one member. Only one goroutine uses it.
type horizon struct {
	endless bool          // the database has one writer: nothing commits late
	drawn   int64         // the greatest place that had been given at the last sample
	seen    int64         // the greatest place of a message that a claim has returned
	safe    int64         // nothing appears any more up to here
	last    time.Duration // the last sample
	known   bool          // there was one
	waiting []drawing     // in the order of their places
}

// drawing is what had been given at a sample, and those who may be about to commit some of it.
type drawing struct {
	drawn   int64
	senders []string
}

// forget: the database may be another one by now. Nothing is known of its numbers.
func (h *horizon) forget() { *h = horizon{endless: h.endless} }

// at is the place (a seq) up to which claims may leave out what they have seen.
func (h *horizon) at() int64 {
	if h.endless {
		return lastPlace
	}
	return h.safe
}

// claimed notes the greatest place of a message that a claim has returned.
func (h *horizon) claimed(place int64) {
	if place < lastPlace {
		h.seen = max(h.seen, place)
	}
}

// due says that a sample is worth its statement: claims read again what lies behind the
// horizon. idle: nothing else keeps the consumer from sleeping, so that the sample is for the
// time after.
func (h *horizon) due(now time.Duration, idle bool) bool {
	if h.endless || h.known && h.seen <= h.safe {
		return false
	}
	return idle || !h.known || now-h.last >= horizonEvery
}

// sampled takes a sample that began at now. It reports that the database has forgotten
// numbers that it had drawn (it was restored, or another server that lagged took over):
// then messages may appear anywhere behind the last of these, and no mark holds.
func (h *horizon) sampled(drawn int64, senders string, now time.Duration) (forgotten bool) {
	if drawn < h.drawn || drawn < h.seen {
		h.forget()
		forgotten = true
	}
	h.known, h.last, h.drawn = true, now, drawn
	here := strings.Fields(senders)
	renamed := slices.Contains(here, sqlbatch.UnknownSender) // any of those that are missing
	for i := range h.waiting {
		w := &h.waiting[i]
		w.senders = slices.DeleteFunc(w.senders, func(s string) bool { return !renamed && !slices.Contains(here, s) })
		if len(w.senders) == 0 {
			h.safe = max(h.safe, w.drawn)
		}
	}
	if len(here) == 0 {
		h.safe = max(h.safe, drawn)
	}
	h.waiting = slices.DeleteFunc(h.waiting, func(w drawing) bool { return w.drawn <= h.safe })
	if drawn <= h.safe || len(h.waiting) > 0 && h.waiting[len(h.waiting)-1].drawn == drawn {
		return forgotten
	}
	if len(h.waiting) == mostSamples {
		h.waiting = h.waiting[:mostSamples-1]
	}
	h.waiting = append(h.waiting, drawing{drawn, here})
	return forgotten
}
