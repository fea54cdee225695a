package claim

import (
	"math"
	"math/rand/v2"
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

const (
	// rescanEvery is the minimum time between two rescans.
	rescanEvery = time.Second
	// Rescans take at most 1/rescanShare of the time.
	rescanShare = 20
)

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

// head is the head of one consumer. Only the goroutine of its claims uses it.
type head struct {
	every time.Duration // minimum time between rescans

	starts sqlbatch.Heads                     // where claims begin
	setAt  [sqlbatch.Priorities]time.Duration // when the claim or rescan that set it began

	// Fields of rescans.
	underWay     bool
	startsBefore sqlbatch.Heads // starts, when the running rescan began
	lowered      sqlbatch.Heads // the lowest positions released or rescued since
	began        time.Duration  // when the last one began
	took         time.Duration  // by the last one that has ended
	sharers      int            // consumers that the last one has counted
	restsUntil   time.Duration  // no rescan before this time
	hurried      bool           // the next rescan begins as soon as restsUntil allows
	due          time.Duration  // of the next message that the last rescan found; 0: it found none
}

// newHead returns a head at the beginning, with a rescan due.
func newHead(pollMax time.Duration) head {
	return head{every: min(rescanEvery, pollMax), began: -rescanEvery}
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

// lower records that there are messages at these positions again.
func (h *head) lower(places sqlbatch.Heads) {
	h.starts, h.lowered = notify.Lowest(h.starts, places), notify.Lowest(h.lowered, places)
}

// next returns when the next rescan may begin.
func (h *head) next() time.Duration {
	if h.hurried {
		return h.restsUntil
	}
	return max(h.restsUntil, h.began+h.every)
}

// isDue reports that a rescan may begin now.
func (h *head) isDue(now time.Duration) bool { return !h.underWay && now >= h.next() }

// begin records that a rescan begins.
func (h *head) begin(now time.Duration) {
	h.underWay, h.hurried, h.startsBefore, h.lowered, h.began = true, false, h.starts, notify.NoPlace, now
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
	if s.Any {
		h.due = s.began + s.took + s.Due
	}
	for p, found := range s.Heads {
		if found.Compare(h.startsBefore[p]) < 0 {
			below = below || s.Ready[p]
		} else if found.Compare(h.starts[p]) < 0 {
			continue
		}
		h.starts[p], h.setAt[p] = found, s.began
	}
	h.starts = notify.Lowest(h.starts, h.lowered)
	return below
}

// wait returns the maximum time to wait for a useful rescan: one that is hurried, or that finds a message whose due
// time the last one has seen.
func (h *head) wait(now time.Duration) time.Duration {
	switch {
	case h.underWay, h.due == 0 && !h.hurried:
		return math.MaxInt64
	case h.hurried:
		return max(0, h.next()-now)
	default:
		return max(0, max(h.due, h.next())-now)
	}
}
