package consume

import (
	"time"
)

// wear has the database's figures of the live table: see sqlbatch.Queue.Bloat.
type wear struct {
	dead, live, vacuums int64
	denied              string // why this consumer may not vacuum; "" if it may
}

// vacuumPace decides when to check and when to vacuum the live table, by the figures of the database, which are the
// same for all processes, and by their change after the last vacuum. It runs no statement, and one goroutine uses it.
//
// In general the consumer that vacuumed last continues to do it, because the others see at each check that there was a
// vacuum. While a snapshot of another session keeps dead rows from being removed, a vacuum reads the table without
// effect. The next one follows when the number of dead rows has doubled, or after a pause that is long compared with
// the time of a vacuum.
type vacuumPace struct {
	ended  int64         // leases of the consumer that had ended at its last check
	looked time.Duration // when that was, monotonic
	last   *wear         // result of the last check; nil: there was none

	left     int64         // dead rows that the last vacuum could not remove; 0: it could, or it failed
	notUntil time.Duration // no vacuum before this time, monotonic, unless the rows that were left have doubled
}

const (
	// A check is due after so many messages, or after a minute with any message.
	lookAfter   = 1000
	lookAtLeast = time.Minute

	// wornOut is how many more dead rows than live ones are worth a vacuum: it reads all indexes, which are filled by
	// the live rows. A vacuum had no effect if it leaves as many dead rows, and half of those before it.
	wornOut = 20_000

	// A vacuum with an effect takes at most half of the time. Rows that die during the pause make the next vacuum
	// longer: with a pause of several times its length each vacuum would take longer than the last. A vacuum without
	// effect is not repeated for two minutes, or longer if it takes more than 5 % of that, unless the number of dead
	// rows doubles.
	restAfterVain = 20
	restVainLeast = 2 * time.Minute
)

// due reports that it is time for a check.
func (p *vacuumPace) due(now time.Duration, ended int64) bool {
	due := ended-p.ended >= lookAfter || ended > p.ended && now-p.looked >= lookAtLeast
	if due {
		p.ended, p.looked = ended, now
	}
	return due
}

// worth records the result of a check, and reports that the table should be vacuumed now.
func (p *vacuumPace) worth(now time.Duration, w wear) bool {
	before := p.last
	p.last = &w
	switch {
	case before == nil:
		return false // it is unknown whether consumers have vacuumed before
	case w.vacuums != before.vacuums:
		p.note(now, 0, before.dead)
		return false // the consumer that vacuumed continues
	case w.dead < wornOut+w.live:
		p.left = 0
		return false
	}
	return now >= p.notUntil || p.left > 0 && w.dead >= 2*p.left
}

// done records a vacuum of this consumer, and the result of the check after it.
func (p *vacuumPace) done(now, took time.Duration, w wear) {
	before := p.last
	p.last = &w
	if w.vacuums != before.vacuums { // otherwise another session is vacuuming, and this vacuum was skipped
		p.note(now, took, before.dead)
	}
}

// failed records a failed vacuum.
func (p *vacuumPace) failed(now, took time.Duration) {
	p.left, p.notUntil = 0, now+restVain(took)
}

func restVain(took time.Duration) time.Duration { return max(restVainLeast, restAfterVain*took) }

// note compares the dead rows after a vacuum with those before it.
func (p *vacuumPace) note(now, took time.Duration, before int64) {
	p.left, p.notUntil = 0, now+took
	if p.last.dead >= wornOut && p.last.dead >= before/2 {
		p.left, p.notUntil = p.last.dead, now+restVain(took)
	}
}
