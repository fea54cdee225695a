package claim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The head of a consumer: where its claims begin to read each priority, so that none
// walks what was claimed before (see sqlbatch.Floors).
//
// A claim raises it to the last place that it took. What comes to a place below it is
// not seen by claims then: a message whose transaction took long to commit, what another
// process gave back, one whose lease ran out. A rescan finds it: a statement that looks
// from the beginning, reads only and holds nothing, once a second (rescan.go). What it
// finds lowers the head. What this process gives back does so at once (shared.go).
//
// Where a rescan is dear, since a snapshot somewhere keeps the database from
// cleaning up, say, they are so far apart that all consumers of the queue together
// spend a twentieth of the time on them, as long as the queue knows how many these are.
// What has happened once is no price: see cost.

const (
	// rescanEvery is the least time from one rescan to the next.
	rescanEvery = time.Second
	// rescanShare is what part of the time goes into rescans at most.
	rescanShare = 20
	// rescanSlow is how long a rescan takes at most for which claims may wait.
	rescanSlow = 50 * time.Millisecond
)

// NoPlace is above all places.
var NoPlace = sqlbatch.Floors{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}

// lowest of two, each priority by itself.
func Lowest(a, b sqlbatch.Floors) sqlbatch.Floors {
	for i := range a {
		a[i] = min(a[i], b[i])
	}
	return a
}

// PlacesOf is where the first lease of each priority was claimed that a release gives
// back; NoPlace where there is none. What a nack gives back is due anew.
func PlacesOf(leases []*lease.Lease) sqlbatch.Floors {
	low := NoPlace
	for _, l := range leases {
		if l.Op == lease.Release {
			p := &low[l.Priority-sqlbatch.PriorityLow]
			*p = min(*p, l.Due)
		}
	}
	return low
}

// raised is a head after a claim from there.
func raised(from sqlbatch.Floors, rows []table.Claimed) sqlbatch.Floors {
	for i := range rows {
		p := int(rows[i].Priority) - sqlbatch.PriorityLow
		from[p] = max(from[p], rows[i].Due)
	}
	return from
}

// cost is what looking from the beginning costs: the lesser of what the last two times
// took. One of them may have waited for a lock, or for a database or a process that stood
// still, and the rest that follows on it would be minutes, or hours.
type cost struct{ last time.Duration }

// of notes what it took this time.
func (c *cost) of(took time.Duration) time.Duration {
	lesser := min(took, c.last)
	c.last = took
	return lesser
}

// head is that of one consumer. Only the goroutine of its claims uses it.
type head struct {
	every time.Duration // between rescans, at least

	now  sqlbatch.Floors                    // where claims begin
	seen [sqlbatch.Priorities]time.Duration // when what raised it last, a claim or a rescan, began

	// Of rescans.
	underWay  bool
	before    sqlbatch.Floors // now, when the one under way began
	given     sqlbatch.Floors // the lowest places given back since
	began     time.Duration   // the last one
	rest      time.Duration   // none before: the others' share of the time
	cost      cost
	consumers int
	hurried   bool          // somebody says that there is something
	due       time.Duration // when the last one saw something to come; 0 is never

	// The first claim after a rescan that lowered the head walks what lies between. Where
	// that is much, it is part of the price of the rescan.
	lowered bool
	walk    cost
	usual   time.Duration // what a claim takes otherwise
}

// newHead is at the beginning, and a rescan is due.
func newHead(pollMax time.Duration) head {
	return head{every: min(rescanEvery, pollMax), began: -rescanEvery}
}

// ask says where a claim begins.
//
// What was about to be committed when the head was raised lies up to a FloorMargin below
// it. A claim reaches back as far by itself, but from its own time: one that comes later
// has to be sent there.
func (h *head) ask(now time.Duration) sqlbatch.Floors {
	from := h.now
	for p := range from {
		if now-h.seen[p] > sqlbatch.FloorMargin/2 {
			from[p] -= min(max(0, from[p]), sqlbatch.FloorMargin.Milliseconds())
		}
	}
	return from
}

// claimed notes what a claim brought, how long it took, and when it ended.
func (h *head) claimed(rows []table.Claimed, took, now time.Duration) {
	before := h.now
	h.now = raised(before, rows)
	for p := range h.now {
		if h.now[p] > before[p] {
			h.seen[p] = now - took
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

// recovered notes that the database answers again: how long it took before says nothing.
func (h *head) recovered() { h.rest, h.cost, h.walk, h.hurried = 0, cost{}, cost{}, true }

// lower notes that something lies at these places again.
func (h *head) lower(places sqlbatch.Floors) {
	h.now, h.given = Lowest(h.now, places), Lowest(h.given, places)
}

// price is the rest that follows on a time which was spent on looking.
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

// isDue says that a rescan may begin now.
func (h *head) isDue(now time.Duration) bool { return !h.underWay && now >= h.next() }

// begin notes that a rescan begins.
func (h *head) begin(now time.Duration) {
	h.underWay, h.hurried, h.before, h.given, h.began = true, false, h.now, NoPlace, now
}

// end takes what a rescan found. It reports that something lies below where claims have
// got to.
//
// A rescan sees what there was when it began. What it saw at or behind the head of that
// time was the claims' own to find. Where the database's clock has gone back, the head follows.
func (h *head) end(s rescan) (below bool) {
	h.underWay = false
	if s.Known {
		h.consumers = s.Consumers
	}
	rest := h.price(h.cost.of(s.took))
	if h.consumers > 1 { // that they look at different times
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
	h.now = Lowest(h.now, h.given)
	return below
}

// wait is how long to wait at most for a rescan that is worth it: when something comes
// that the last one saw, or somebody is in a hurry.
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
