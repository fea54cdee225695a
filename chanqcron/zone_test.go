package chanqcron

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// walker applies the rules of the documentation minute by minute, to check line.next. Each line has the minutes that
// have ticked, as its clock shows them.
type walker struct {
	zone  *time.Location
	lines []line
	seen  []map[time.Time]bool
	last  time.Time // what the clock showed a minute ago
}

func walk(zone *time.Location, lines ...line) *walker {
	w := &walker{zone: zone, lines: lines, seen: make([]map[time.Time]bool, len(lines))}
	for i := range w.seen {
		w.seen[i] = map[time.Time]bool{}
	}
	return w
}

// minute calls tick for each line that ticks at a minute. It must be called for each minute.
func (w *walker) minute(u time.Time, tick func(i int)) {
	_, offset := u.In(w.zone).Zone()
	shown := u.UTC().Add(time.Duration(offset) * time.Second)
	from := shown
	if skipped := w.last.Add(time.Minute); !w.last.IsZero() && skipped.Before(shown) {
		from = skipped
	}
	w.last = shown
	ticks := map[int]bool{}
	for at := from; !at.After(shown); at = at.Add(time.Minute) {
		_, month, day := at.Date()
		hour, minute, _ := at.Clock()
		midnight := at.Truncate(24 * time.Hour)
		gone := !midnight.Before(from) && !shown.Before(midnight.Add(24*time.Hour)) // nothing of this day is shown
		for i, l := range w.lines {
			date, weekday := (l.days>>day)&1, (l.weekdays>>at.Weekday())&1
			onDay := date+weekday == 2 || l.eitherDay && date+weekday == 1
			if l.minutes>>minute&1 == 0 || l.hours>>hour&1 == 0 || l.months>>month&1 == 0 || !onDay || gone {
				continue
			}
			if l.clock {
				ticks[i] = ticks[i] || at.Equal(shown)
			} else if !w.seen[i][at] {
				w.seen[i][at], ticks[i] = true, true
			}
		}
	}
	for i, is := range ticks {
		if is {
			tick(i)
		}
	}
}

// first returns the first tick of a line after t, if it is within a time.
func first(l line, zone *time.Location, t time.Time, within time.Duration) (at time.Time, some bool) {
	w := walk(zone, l)
	for u := t.Truncate(time.Minute).Add(-30 * time.Hour); u.Before(t.Add(within)) && !some; u = u.Add(time.Minute) {
		w.minute(u, func(int) {
			if u.After(t) {
				at, some = u, true
			}
		})
	}
	return at, some
}

// years has a year for each zone: with changes of the clock at midnight, before it, by half an hour and by a day, in
// both directions, or without.
var years = map[string]int{
	"UTC": 2024, "Europe/Berlin": 2026, "America/New_York": 2026, "Australia/Lord_Howe": 2026, "America/Sao_Paulo": 2017,
	"America/Nuuk": 2025, "Pacific/Apia": 2011, "Africa/Cairo": 2026, "America/Santiago": 2026,
}

func TestTheTicksOfAYearAreThoseOfAWalkOverItsMinutes(t *testing.T) {
	var lines []line
	texts := []string{"30 2 * * *", "0 2 * * *", "15,45 1-3 * * *", "*/20 * * * *", "0 0 * * *", "30 23 * * *", "0 3 1 * *",
		"5 4 * * mon-fri", "0 */2 * * *", "0 0 29 2 *", "0 12 13 * 5", "59 23 31 12 *", "* 1-2 * * sun", "0 0 30 12 *", "7 */5 */2 * */3"}
	for _, text := range texts {
		l, err := parse(text)
		require.NoError(t, err)
		lines = append(lines, l)
	}
	for name, year := range years {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) {
			from, until := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC)
			next := make([]time.Time, len(lines))
			for i, l := range lines {
				next[i] = l.next(from, zone)
			}
			w := walk(zone, lines...)
			for u := from.Add(-30 * time.Hour); u.Before(until); u = u.Add(time.Minute) {
				w.minute(u, func(i int) {
					if !u.After(from) {
						return
					}
					if !next[i].Equal(u) {
						require.Fail(t, "wrong tick", "%q: %v, want %v", texts[i], next[i].In(zone), u.In(zone))
					}
					next[i] = lines[i].next(u, zone)
				})
			}
			for i := range lines {
				require.False(t, next[i].Before(until), "%q: the walk has no tick at %v", texts[i], next[i].In(zone))
			}
		})
	}
}

func TestTicksOfDaysWithAChangeOfTheClock(t *testing.T) {
	for _, c := range []struct{ zone, line, after, want string }{
		{"Europe/Berlin", "30 2 * * *", "2026-03-29 00:00", "2026-03-29 03:00 +0200, 2026-03-30 02:30 +0200"}, // skipped
		{"Europe/Berlin", "30 2 * * *", "2026-10-25 00:00", "2026-10-25 02:30 +0200, 2026-10-26 02:30 +0100"}, // occurs twice
		{"Europe/Berlin", "15,45 2 * * *", "2026-03-29 00:00", "2026-03-29 03:00 +0200, 2026-03-30 02:15 +0200"},
		{"Europe/Berlin", "30 * * * *", "2026-10-25 01:45", "2026-10-25 02:30 +0200, 2026-10-25 02:30 +0100, 2026-10-25 03:30 +0100"},
		{"Europe/Berlin", "30 * * * *", "2026-03-29 01:00", "2026-03-29 01:30 +0100, 2026-03-29 03:30 +0200"},
		{"America/Sao_Paulo", "0 0 * * *", "2017-10-14 12:00", "2017-10-15 01:00 -0200, 2017-10-16 00:00 -0200"}, // the day begins at one
		{"America/Nuuk", "30 23 * * *", "2025-03-29 12:00", "2025-03-30 00:00 -0100, 2025-03-30 23:30 -0100"},    // the last hour of a day
		{"Pacific/Apia", "0 9 * * *", "2011-12-29 00:00", "2011-12-29 09:00 -1000, 2011-12-31 09:00 +1400"},      // there was no 30th
	} {
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		l, err := parse(c.line)
		require.NoError(t, err)
		at, err := time.ParseInLocation("2006-01-02 15:04", c.after, zone)
		require.NoError(t, err)
		got := ""
		for len(got) < len(c.want) {
			at = l.next(at, zone)
			if got != "" {
				got += ", "
			}
			got += at.In(zone).Format("2006-01-02 15:04 -0700")
		}
		require.Equal(t, c.want, got, "%s in %s", c.line, c.zone)
	}
}
