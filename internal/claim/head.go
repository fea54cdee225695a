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

// The head of a consumer is where its claims begin to read each priority, so that no claim walks over what was claimed before (see
// sqlbatch.Heads).
//
// A claim moves the head to the last place that it has taken. Claims do not see a message that comes to a place before the head:
// one whose transaction took long to commit, one that another process gave back, one whose lease expired. A rescan finds it: a
// statement that looks from the beginning, reads only and holds no lock, once a second (rescan.go). What a rescan finds moves the
// head back, and so does at once what this process gives back.
//
// Where a rescan is expensive, for example because a snapshot keeps the database from cleaning up, rescans are so rare that all
// consumers of the queue together spend a twentieth of the time on them. A time that was long once does not count: see cost.

const (
	// rescanEvery is the least time from one rescan to the next.
	rescanEvery = time.Second
	// One part in rescanShare of the time goes into rescans at most.
	rescanShare = 20
	// rescanSlow is how long a rescan takes at most for which claims may wait.
	rescanSlow = 50 * time.Millisecond
)

// PlacesOf returns, for each priority, the first place of a message that a release gives back; notify.NoPlace where there is none. What a
// nack gives back is due later, at another place.
func PlacesOf(leases []*lease.Lease) sqlbatch.Heads {
	low := notify.NoPlace
	for _, l := range leases {
		if l.Op == lease.Release {
			p := &low[l.Priority-sqlbatch.PriorityLow]
			*p = min(*p, l.Due)
		}
	}
	return low
}

// cost is the time that a rescan takes: the lesser of the last two. One of them may have waited for a lock, or for a database or a
// process that was stopped, and the pause that follows would be minutes, or hours.
type cost struct{ last time.Duration }

// of notes a time, and returns the cost.
func (c *cost) of(took time.Duration) time.Duration {
	lesser := min(took, c.last)
	c.last = took
	return lesser
}

// head is that of one consumer. Only the goroutine of its claims uses it.
type head struct {
	every time.Duration // between rescans, at least

	now  sqlbatch.Heads                     // where claims begin
	seen [sqlbatch.Priorities]time.Duration // when what raised it last, a claim or a rescan, began

	// Of rescans.
	underWay  bool
	before    sqlbatch.Heads // now, when the one under way began
	given     sqlbatch.Heads // the lowest places given back since
	began     time.Duration  // the last one
	rest      time.Duration  // none before: the others' share of the time
	cost      cost
	consumers int
	hurried   bool          // the next one begins as soon as rest allows
	due       time.Duration // of the next message that the last one has found; 0: there was none

	// The first claim after a rescan that moved the head back walks over what lies between. Where that is much, it is part of the
	// price of the rescan.
	lowered bool
	walk    cost
	usual   time.Duration // what a claim takes otherwise
}

// newHead is at the beginning, and a rescan is due.
func newHead(pollMax time.Duration) head {
	return head{every: min(rescanEvery, pollMax), began: -rescanEvery}
}

// ask returns where a claim begins.
//
// A message that was about to be committed when the head moved is up to a HeadMargin before it. A claim reaches back as far by
// itself, but from its own time: one that comes later has to begin there.
func (h *head) ask(now time.Duration) sqlbatch.Heads {
	from := h.now
	for p := range from {
		if now-h.seen[p] > sqlbatch.HeadMargin/2 {
			from[p] -= min(max(0, from[p]), sqlbatch.HeadMargin.Milliseconds())
		}
	}
	return from
}

// claimed notes what a claim brought, how long it took, and when it ended.
func (h *head) claimed(rows []table.Claimed, took, now time.Duration) {
	for i := range rows {
		p := int(rows[i].Priority) - sqlbatch.PriorityLow
		if rows[i].Due > h.now[p] {
			h.now[p], h.seen[p] = rows[i].Due, now-took
		}
	}
	switch {
	case !h.lowered:
		h.usual = took
	case took > rescanSlow:
		h.rest = max(h.rest, now) + h.price(h.walk.of(max(0, took-h.usual)))
	default:
		h.walk.of(0)
	}
	h.lowered = false
}

// recovered notes that the database answers again. The times of rescans before do not count.
func (h *head) recovered() { h.rest, h.cost, h.walk, h.hurried = 0, cost{}, cost{}, true }

// lower notes that there are messages at these places again.
func (h *head) lower(places sqlbatch.Heads) {
	h.now, h.given = notify.Lowest(h.now, places), notify.Lowest(h.given, places)
}

// price is the pause that follows on a time which was spent on a rescan.
func (h *head) price(took time.Duration) time.Duration {
	return rescanShare * time.Duration(max(1, h.consumers)) * took
}

// next is when the next rescan may begin.
func (h *head) next() time.Duration {
	if h.hurried {
		return h.rest
	}
	return max(h.rest, h.began+h.every)
}

// isDue reports that a rescan may begin now.
func (h *head) isDue(now time.Duration) bool { return !h.underWay && now >= h.next() }

// begin notes that a rescan begins.
func (h *head) begin(now time.Duration) {
	h.underWay, h.hurried, h.before, h.given, h.began = true, false, h.now, notify.NoPlace, now
}

// end takes what a rescan has found. It reports that a message is ready before the head.
//
// A rescan sees what there was when it began. Claims find by themselves what it saw at or behind the head of that time. Where the
// database's clock was set back, the head follows.
func (h *head) end(s rescan) (below bool) {
	h.underWay = false
	if s.Known {
		h.consumers = s.Consumers
	}
	rest := h.price(h.cost.of(s.took))
	if h.consumers > 1 { // so that they begin at different times
		rest += time.Duration(rand.Int64N(int64(rest)/4 + 1))
	}
	h.rest = s.began + s.took + rest
	if !s.Known {
		return false
	}
	h.due = 0
	if s.Any {
		h.due = s.began + s.took + s.Due
	}
	for p, found := range s.Heads {
		if found < h.before[p] {
			below = below || s.Ready[p]
		} else if found < h.now[p] {
			continue
		}
		h.now[p], h.seen[p] = found, s.began
	}
	h.lowered = h.lowered || below
	h.now = notify.Lowest(h.now, h.given)
	return below
}

// wait returns for how long to wait at most for a rescan that is worth it: one that is hurried, or that finds a message of which the
// last one has seen when it will be due.
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
