package claim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The head of a consumer is where its claims begin to read each priority, so that no claim walks over messages that
// were claimed before (see sqlbatch.Heads).
//
// A claim moves the head to the last position that it has taken. A message might appear before the head later, because
// its transaction took long to commit, another process released it, or its lease expired. Claims do not see it, but a
// rescan does: a statement that reads from the beginning once a second, without a lock (rescan.go). What it finds moves
// the head back. Releases of this process move the head back immediately.
//
// After a rescan each consumer rests for 20 times as long as it took, times the number of consumers: if rescans are
// expensive, for example because a snapshot keeps the database from cleaning up, all consumers of the queue together
// spend 5 % of the time on them. The lesser of the last two times counts. One of the two might have waited for a lock,
// or for a stopped database or process; the rest would then be minutes or hours.

// Rescans take at most 1/rescanShare of the time.
const rescanShare = 20

// PlacesOf returns the first position of a released message for each priority, or notify.NoPlace if there is none.
// Nacked messages are due later, at another position.
func PlacesOf(leases []*lease.Lease) sqlbatch.Heads {
	low := notify.NoPlace
	for _, l := range leases {
		if l.Op == lease.Release {
			p := &low[l.Priority-sqlbatch.PriorityLow]
			if at := (sqlbatch.Head{Due: l.Due, ID: l.Item.ID}); at.Compare(*p) < 0 {
				*p = at
			}
		}
	}
	return low
}

// head is the head of one consumer. Only the goroutine of its claims uses it. The zero value is at the beginning, and a
// rescan is due.
type head struct {
	starts sqlbatch.Heads                     // where claims begin
	setAt  [sqlbatch.Priorities]time.Duration // when the claim or rescan that set it began

	// Fields of rescans.
	underWay   bool
	before     sqlbatch.Heads // starts, when the last one began; NoPlace where a message was released since
	took       time.Duration  // by the last one that has ended
	sharers    int            // consumers that the last one that succeeded has counted
	restsUntil time.Duration  // no rescan before this time
	at         time.Duration  // of the next one, if it does not rest; 0: it is hurried
	due        time.Duration  // of the next message that the last one found; 0: it found none
}

// ask returns where a claim begins.
//
// A message that was about to be committed when the head moved is up to a HeadMargin before it. A claim itself reaches
// back that far, but from its own time: a later claim has to begin there.
func (h *head) ask(now time.Duration) sqlbatch.Heads {
	from := h.starts
	for p := range from {
		if now-h.setAt[p] > sqlbatch.HeadMargin/2 {
			from[p] = sqlbatch.Head{Due: from[p].Due - min(max(0, from[p].Due), sqlbatch.HeadMargin.Milliseconds())}
		}
	}
	return from
}

// claimed records the rows of a claim, and when it began.
func (h *head) claimed(rows []table.Claimed, began time.Duration) {
	for i := range rows {
		p := int(rows[i].Priority) - sqlbatch.PriorityLow
		if at := (sqlbatch.Head{Due: rows[i].Due, ID: rows[i].Item.ID}); at.Compare(h.starts[p]) > 0 {
			h.starts[p], h.setAt[p] = at, began
		}
	}
}

// lower records that there are messages at these positions again. A running rescan might not have seen them.
func (h *head) lower(places sqlbatch.Heads) {
	h.starts = notify.Lowest(h.starts, places)
	for p := range places {
		if places[p].Compare(notify.NoPlace[p]) < 0 {
			h.before[p] = notify.NoPlace[p]
		}
	}
}

// hurry makes the next rescan begin as soon as its share of the time allows.
func (h *head) hurry() { h.at = 0 }

// isDue reports that a rescan may begin now.
func (h *head) isDue(now time.Duration) bool { return !h.underWay && now >= max(h.restsUntil, h.at) }

// begin records that a rescan begins.
func (h *head) begin(now, pollMax time.Duration) {
	h.underWay, h.before, h.at = true, h.starts, now+min(notify.LookEvery, pollMax)
}

// end applies the result of a rescan. It reports that a message is ready before the head.
//
// A rescan sees the messages that existed when it began. Claims find the messages at or behind the head of that time
// themselves. If the database's clock was set back, the head follows.
func (h *head) end(s rescan) (below bool) {
	h.underWay = false
	if s.Known {
		h.sharers = s.Consumers
	}
	rest := rescanShare * time.Duration(max(1, h.sharers)) * min(s.took, h.took)
	if h.sharers > 1 { // so that they begin at different times
		rest += time.Duration(rand.Int64N(int64(rest)/4 + 1))
	}
	h.took, h.restsUntil = s.took, s.began+s.took+rest
	if !s.Known {
		return false
	}
	h.due = 0
	if s.Due < math.MaxInt64 {
		h.due = s.began + s.took + s.Due
	}
	for p, found := range s.Heads {
		switch {
		case found.Compare(h.before[p]) < 0:
			below = below || s.Ready[p]
			found = slices.MinFunc([]sqlbatch.Head{found, h.starts[p]}, sqlbatch.Head.Compare)
		case h.starts[p] != h.before[p]:
			continue
		}
		h.starts[p], h.setAt[p] = found, s.began
	}
	return below
}

// wait returns the maximum time to wait for a useful rescan: one that is hurried, or that finds a message whose due
// time the last one has seen.
func (h *head) wait(now time.Duration) time.Duration {
	at := max(h.restsUntil, h.at)
	switch {
	case h.underWay, h.due == 0 && h.at > 0:
		return math.MaxInt64
	case h.at > 0:
		at = max(at, h.due)
	}
	return max(0, at-now)
}
