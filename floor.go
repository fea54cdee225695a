package chanq

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/sqlbatch"
)

// The floor of a consumer: where its claims begin to read each priority, so that none
// walks what was claimed before (see sqlbatch.Floors).
//
// A claim raises it to the last place that it took. What comes to a place below it is
// not seen by claims then: a message whose transaction took long to commit, what another
// process gave back, one whose lease ran out. A survey finds it: a statement that looks
// from the beginning, reads only and holds nothing, once a second (survey.go). What it
// finds lowers the floor. What this process gives back does so at once (shared.go).
//
// Where a survey is dear, since a snapshot somewhere keeps the database from
// cleaning up, say, they are so far apart that all consumers of the queue together
// spend a twentieth of the time on them, as long as the queue knows how many these are.
// What has happened once is no price: see cost.

const (
	// surveyEvery is the least time from one survey to the next.
	surveyEvery = time.Second
	// surveyShare is what part of the time goes into surveys at most.
	surveyShare = 20
	// surveySlow is how long a survey takes at most for which claims may wait.
	surveySlow = 50 * time.Millisecond
)

// noPlace is above all places.
var noPlace = sqlbatch.Floors{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}

// lowest of two, each priority by itself.
func lowest(a, b sqlbatch.Floors) sqlbatch.Floors {
	for i := range a {
		a[i] = min(a[i], b[i])
	}
	return a
}

// placesOf is where the first lease of each priority was claimed that a release gives
// back; noPlace where there is none. What a nack gives back is due anew.
func placesOf(leases []*lease.Lease) sqlbatch.Floors {
	low := noPlace
	for _, l := range leases {
		if l.Op == lease.Release {
			p := &low[l.Priority-sqlbatch.PriorityLow]
			*p = min(*p, l.Due)
		}
	}
	return low
}

// raised is a floor after a claim from there.
func raised(from sqlbatch.Floors, rows []claimedRow) sqlbatch.Floors {
	for i := range rows {
		p := Priority(rows[i].Priority) - PriorityLow
		from[p] = max(from[p], rows[i].Due)
	}
	return from
}

// survey is what a survey found.
type survey struct {
	began, took time.Duration // of monotonic, and how long its statement was under way
	known       bool          // false: the queue is paused, or it failed
	late        bool          // it failed because its time was over
	floors      sqlbatch.Floors
	ready       [sqlbatch.Priorities]bool // there is something to claim
	due         time.Duration             // until there may be something to claim
	any         bool                      // there is something to come, or there
	members     int
	suspects    []suspect // the first unleased message of each priority, if it is a suspect
	err         error
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

// floor is that of one consumer. Only its claimer uses it.
type floor struct {
	every time.Duration // between surveys, at least

	now  sqlbatch.Floors                    // where claims begin
	seen [sqlbatch.Priorities]time.Duration // when what raised it last, a claim or a survey, began

	// Of surveys.
	underWay bool
	before   sqlbatch.Floors // now, when the one under way began
	given    sqlbatch.Floors // the lowest places given back since
	began    time.Duration   // the last one
	rest     time.Duration   // none before: the others' share of the time
	cost     cost
	members  int
	hurried  bool          // somebody says that there is something
	due      time.Duration // when the last one saw something to come; 0 is never

	// The first claim after a survey that lowered the floor walks what lies between. Where
	// that is much, it is part of the price of the survey.
	lowered bool
	walk    cost
	usual   time.Duration // what a claim takes otherwise
}

// newFloor is at the beginning, and a survey is due.
func newFloor(pollMax time.Duration) floor {
	return floor{every: min(surveyEvery, pollMax), began: -surveyEvery}
}

// ask says where a claim begins.
//
// What was about to be committed when the floor was raised lies up to a FloorMargin below
// it. A claim reaches back as far by itself, but from its own time: one that comes later
// has to be sent there.
func (f *floor) ask(now time.Duration) sqlbatch.Floors {
	from := f.now
	for p := range from {
		if now-f.seen[p] > sqlbatch.FloorMargin/2 {
			from[p] -= min(max(0, from[p]), sqlbatch.FloorMargin.Milliseconds())
		}
	}
	return from
}

// claimed notes what a claim brought, how long it took, and when it ended.
func (f *floor) claimed(rows []claimedRow, took, now time.Duration) {
	before := f.now
	f.now = raised(before, rows)
	for p := range f.now {
		if f.now[p] > before[p] {
			f.seen[p] = now - took
		}
	}
	switch {
	case !f.lowered:
		f.usual = took
	case took > surveySlow:
		f.rest = max(f.rest, now) + f.price(f.walk.of(max(0, took-f.usual)))
	default:
		f.walk.of(0)
	}
	f.lowered = false
}

// recovered notes that the database answers again: how long it took before says nothing.
func (f *floor) recovered() { f.rest, f.cost, f.walk, f.hurried = 0, cost{}, cost{}, true }

// lower notes that something lies at these places again.
func (f *floor) lower(places sqlbatch.Floors) {
	f.now, f.given = lowest(f.now, places), lowest(f.given, places)
}

// price is the rest that follows on a time which was spent on looking.
func (f *floor) price(took time.Duration) time.Duration {
	return surveyShare * time.Duration(max(1, f.members)) * took
}

// next is when the next survey may begin.
func (f *floor) next() time.Duration {
	if f.hurried {
		return f.rest
	}
	return max(f.rest, f.began+f.every)
}

// isDue says that a survey may begin now.
func (f *floor) isDue(now time.Duration) bool { return !f.underWay && now >= f.next() }

// begin notes that a survey begins.
func (f *floor) begin(now time.Duration) {
	f.underWay, f.hurried, f.before, f.given, f.began = true, false, f.now, noPlace, now
}

// end takes what a survey found. It reports that something lies below where claims have
// got to.
//
// A survey sees what there was when it began. What it saw at or behind the floor of that
// time was the claims' own to find. Where the database's clock has gone back, the floor follows.
func (f *floor) end(s survey) (below bool) {
	f.underWay = false
	if s.known {
		f.members = s.members
	}
	rest := f.price(f.cost.of(s.took))
	if f.members > 1 { // that they look at different times
		rest += time.Duration(rand.Int64N(int64(rest)/4 + 1))
	}
	f.rest = s.began + s.took + rest
	if !s.known {
		return false
	}
	f.due = 0
	if s.any {
		f.due = s.began + s.took + s.due
	}
	for p, found := range s.floors {
		if found < f.before[p] {
			below = below || s.ready[p]
		} else if found < f.now[p] {
			continue
		}
		f.now[p], f.seen[p] = found, s.began
	}
	f.lowered = f.lowered || below
	f.now = lowest(f.now, f.given)
	return below
}

// wait is how long to wait at most for a survey that is worth it: when something comes
// that the last one saw, or somebody is in a hurry.
func (f *floor) wait(now time.Duration) time.Duration {
	switch {
	case f.underWay, f.due == 0 && !f.hurried:
		return math.MaxInt64
	case f.hurried:
		return max(0, f.next()-now)
	default:
		return max(0, max(f.due, f.next())-now)
	}
}
