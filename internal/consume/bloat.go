package consume

import (
	"time"
)

// wear is what the database reports of the live table: see sqlbatch.Queue.Bloat.
type wear struct {
	dead, live, vacuums int64
	denied              string // why this consumer may not vacuum; "" if it may
}

// vacuumPace decides when the live table is looked at and when it is vacuumed: by the figures of the database, which are the same for
// all processes, and their change after the last vacuum. It makes no statement, and one goroutine uses it.
//
// In general the consumer that vacuumed last goes on to do so, since the others see at each look that there was a vacuum. While a
// snapshot of another session keeps dead rows from being removed, a vacuum reads the table without an effect. The next one follows when
// the dead rows have doubled, or after a pause that is long compared with the time of a vacuum.
type vacuumPace struct {
	taken  int64         // messages that the consumer had taken at its last look
	looked time.Duration // when that was, of monotonic
	seen   bool          // there was one
	last   wear          // what it found

	left     int64         // dead that the last vacuum could not remove; 0 if it could
	notUntil time.Duration // no vacuum before, of monotonic
	patience time.Duration // after which one is tried though the dead have not doubled
}

const (
	// Of a look: after so many messages, or after a minute of any.
	lookAfter   = 1000
	lookAtLeast = time.Minute

	// wornOut is how many dead rows are worth a vacuum, if there are also as many as live ones: a vacuum reads all indexes, which
	// the live rows fill.
	wornOut = 20_000

	// A vacuum with an effect takes half of the time at most. Rows that die during the pause make the next vacuum longer: with a
	// pause of several times its length each one would take longer than the one before. A vacuum without an effect is not repeated
	// for two minutes, or longer where it takes more than 5 % of that, unless the dead rows double.
	restAfter     = 1
	restAfterVain = 20
	vainAtMost    = 2 * time.Minute
)

// due reports that it is time to look.
func (p *vacuumPace) due(now time.Duration, taken int64) bool {
	due := taken-p.taken >= lookAfter || taken > p.taken && now-p.looked >= lookAtLeast
	if due {
		p.taken, p.looked = taken, now
	}
	return due
}

// worth notes what a look found, and reports that the table should be vacuumed now.
func (p *vacuumPace) worth(now time.Duration, w wear) bool {
	before, first := p.last, !p.seen
	p.last, p.seen = w, true
	switch {
	case first:
		return false // nobody may have vacuumed, or everybody
	case w.vacuums != before.vacuums:
		p.note(now, 0, before.dead)
		return false // who did goes on
	case w.dead < wornOut+w.live:
		p.left = 0
		return false
	case now < p.notUntil:
		return false
	}
	return p.left == 0 || w.dead >= 2*p.left || now >= p.patience
}

// done notes a vacuum of this consumer, and what a look after it found.
func (p *vacuumPace) done(now, took time.Duration, w wear) {
	before := p.last
	p.last = w
	if w.vacuums != before.vacuums { // else somebody else is at it, and it was left out
		p.note(now, took, before.dead)
	}
}

// failed notes one that the database did not do.
func (p *vacuumPace) failed(now, took time.Duration) {
	p.notUntil = now + max(vainAtMost, restAfterVain*took)
}

// note compares what is dead after a vacuum with what was before.
func (p *vacuumPace) note(now, took time.Duration, before int64) {
	p.left = 0
	p.notUntil = now + restAfter*took
	if p.last.dead >= wornOut && p.last.dead >= before/2 {
		p.left = p.last.dead
		p.patience = now + max(vainAtMost, restAfterVain*took)
	}
}
