package engine

import (
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

var (
	firstDay     = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	firstOld     = time.Date(1753, 1, 1, 0, 0, 0, 0, time.UTC)
	baseDay      = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	afterLastDay = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
)

func toTime(v sqltype.Value, from, to sqltype.Type) (sqltype.Value, error) {
	var t time.Time
	switch v := v.(type) {
	case time.Time:
		t = v
		if to.Kind != sqltype.DateTimeOffset {
			_, off := t.Zone()
			t = t.Add(time.Duration(off) * time.Second).UTC()
		}
	case string:
		var err error
		if t, err = parseTime(v); err != nil {
			return nil, err
		}
	default:
		return nil, errNoConversion(from, to)
	}
	return roundTime(t, to)
}

// roundTime rounds t to the precision of its type and checks its range.
func roundTime(t time.Time, to sqltype.Type) (sqltype.Value, error) {
	switch to.Kind {
	case sqltype.Date:
		y, m, d := t.Date()
		t = time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	case sqltype.Time:
		t = time.Date(1, 1, 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
		rounded := roundTo(t, to.Scale)
		if rounded.Day() != 1 {
			rounded = firstDay
		}
		return rounded, nil
	case sqltype.DateTime:
		// Three hundredths of a second.
		day := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
		part := (int64(t.Sub(day))*300 + int64(time.Second)/2) / int64(time.Second)
		t = day.Add(time.Duration((part*10 + 1) / 3 * int64(time.Millisecond)))
	case sqltype.SmallDateTime:
		t = t.Round(time.Minute)
	default:
		t = roundTo(t, to.Scale)
	}
	low := firstDay
	if to.Kind == sqltype.DateTime || to.Kind == sqltype.SmallDateTime {
		low = firstOld
	}
	if t.Before(low) || !t.Before(afterLastDay) {
		return nil, sqlError(242, "The conversion of a varchar data type to a %s data type resulted in an out-of-range value.", kindName(to.Kind))
	}
	return t, nil
}

func roundTo(t time.Time, scale uint8) time.Time {
	unit := time.Second
	for range scale {
		unit /= 10
	}
	return t.Round(unit)
}

// timeLayouts are the formats that do not depend on the session's language, and us_english's with the month first.
var timeLayouts = []string{
	"2006-1-2T15:4:5", "2006-1-2 15:4:5 -07:00", "2006-1-2 15:4:5", "2006-1-2", "20060102 15:4:5", "20060102", "1/2/2006 15:4:5", "1/2/2006", "15:4:5",
}

func parseTime(s string) (time.Time, error) {
	s = strings.Join(strings.Fields(s), " ")
	if s == "" {
		return baseDay, nil
	}
	for _, l := range timeLayouts {
		if t, err := time.Parse(l, s); err == nil {
			if t.Year() == 0 {
				t = t.AddDate(1900, 0, 0)
			}
			return t, nil
		}
	}
	return time.Time{}, errDateConversion()
}

// ticksOf has the date parts of DATEADD and DATEDIFF that have a fixed length, in units of 100 ns.
var ticksOf = map[string]int64{
	"day": 864_000_000_000, "dd": 864_000_000_000, "d": 864_000_000_000, "hour": 36_000_000_000, "hh": 36_000_000_000,
	"minute": 600_000_000, "mi": 600_000_000, "n": 600_000_000, "second": 10_000_000, "ss": 10_000_000, "s": 10_000_000,
	"millisecond": 10_000, "ms": 10_000, "microsecond": 10, "mcs": 10,
}

// addDate implements DATEADD; n fits an int.
func addDate(unit, n int64, t time.Time, typ sqltype.Type) (time.Time, bool) {
	last := ticks(afterLastDay)
	if n > last/unit || n < -last/unit {
		return t, false
	}
	at := ticks(t) + n*unit
	if at < 0 || at >= last {
		return t, false
	}
	t = time.Unix(at/10_000_000-62135596800, at%10_000_000*100).In(t.Location())
	return t, typ.Kind != sqltype.DateTime && typ.Kind != sqltype.SmallDateTime || !t.Before(firstOld)
}

// diffDate implements DATEDIFF: the number of boundaries of the part between a and b.
func diffDate(unit int64, a, b time.Time) int64 { return ticks(b)/unit - ticks(a)/unit }

// parseDelay reads the argument of WAITFOR DELAY: hh:mm[:ss[.mmm]].
func parseDelay(s string) (time.Duration, error) {
	bad := severity(15, 148, "Incorrect time syntax in time string '%s' used with WAITFOR.", s)
	parts := strings.Split(strings.TrimSpace(s), ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, bad
	}
	h, err1 := strconv.Atoi(parts[0])
	m, err2 := strconv.Atoi(parts[1])
	sec, err3 := 0.0, error(nil)
	if len(parts) == 3 {
		sec, err3 = strconv.ParseFloat(parts[2], 64)
	}
	if err1 != nil || err2 != nil || err3 != nil || h > 23 || m > 59 || sec >= 60 {
		return 0, bad
	}
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(sec*float64(time.Second)), nil
}
