package chanqcron

import "time"

// period is a time in which the clock of a zone does not change, from start until end. Zero times mean no bound.
type period struct {
	start, end time.Time
	offset     time.Duration
}

func periodAt(t time.Time, zone *time.Location) period {
	start, end := t.In(zone).ZoneBounds()
	_, seconds := t.In(zone).Zone()
	return period{start, end, time.Duration(seconds) * time.Second}
}

// clock returns the time that the clock shows, as a time in UTC, and instant when it shows it.
func (p period) clock(t time.Time) time.Time       { return t.UTC().Add(p.offset) }
func (p period) instant(shown time.Time) time.Time { return shown.Add(-p.offset) }

// justBefore a time of a clock is still shown before it.
const justBefore = -time.Nanosecond

// next returns the first tick after t, in a zone.
//
// A line whose hour field begins with * ticks whenever the clock shows a selected time. Any other line ticks once for
// each selected time: when the clock first shows this time or a later one. So a time that a change of the clock skips
// ticks at the moment of the change, and a time that occurs twice ticks at its first occurrence. A day that is skipped
// as a whole has no tick.
func (l line) next(t time.Time, zone *time.Location) time.Time {
	if l.every > 0 {
		epoch := time.Unix(0, 0)
		return epoch.Add((t.Sub(epoch)/l.every + 1) * l.every).UTC()
	}
	p := periodAt(t, zone)
	shown := p.clock(t)
	if !l.clock && !p.start.IsZero() {
		before := periodAt(p.start.Add(justBefore), zone)
		if last := before.clock(p.start).Add(justBefore); last.After(shown) { // these times occur twice
			shown = last
		}
	}
	for {
		due, _ := l.after(shown)
		if at := p.instant(due); p.end.IsZero() || at.Before(p.end) {
			return at
		}
		reached := p.clock(p.end)
		p = periodAt(p.end, zone)
		first := p.clock(p.start)
		shown = first.Add(justBefore)
		switch {
		case l.clock:
		case reached.After(first):
			shown = reached.Add(justBefore)
		default:
			for ; due.Before(first); due, _ = l.after(due) { // skipped
				day := due.Truncate(24 * time.Hour)
				if day.Before(reached) || first.Before(day.Add(24*time.Hour)) {
					return p.start.UTC()
				}
			}
		}
	}
}
