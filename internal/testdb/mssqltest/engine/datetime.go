package engine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
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
	case int64:
		t = baseDay.AddDate(0, 0, int(v))
	case float64:
		t = baseDay.Add(time.Duration(v * 24 * float64(time.Hour)))
	case []byte:
		n, err := toInteger(v, from, typeBigInt)
		if err != nil {
			return nil, err
		}
		days, part := int32(n.(int64)>>32), n.(int64)&0xFFFFFFFF
		t = baseDay.AddDate(0, 0, int(days)).Add(time.Duration(part) * time.Second / 300)
	default:
		return nil, errExplicit(from, to)
	}
	return roundTime(t, to)
}

// roundTime gives t the precision of its type and checks its range.
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

// timeLayouts are the spellings that do not depend on the session's language,
// and us_english's month first.
var timeLayouts = []string{
	"2006-1-2T15:4:5Z07:00", "2006-1-2T15:4:5", "2006-1-2 15:4:5 -07:00", "2006-1-2 15:4:5-07:00", "2006-1-2 15:4:5", "2006-1-2 15:4", "2006-1-2",
	"20060102 15:4:5", "20060102 15:4", "20060102",
	"1/2/2006 15:4:5", "1/2/2006 3:4:5 PM", "1/2/2006 3:4PM", "1/2/2006 15:4", "1/2/2006", "2006/1/2 15:4:5", "2006/1/2",
	"Jan 2 2006 3:4PM", "Jan 2 2006", "15:4:5", "15:4",
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

func formatTime(t time.Time, from sqltype.Type, style int) string {
	frac := func(n uint8) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf(".%09d", t.Nanosecond())[:n+1]
	}
	scale := from.Scale
	if from.Kind == sqltype.DateTime {
		scale = 3
	}
	switch style {
	case 126, 127:
		s := t.Format("2006-01-02T15:04:05") + frac(scale)
		if style == 127 {
			s += "Z"
		}
		return s
	case 121, 120, 20, 21, 25:
		s := t.Format("2006-01-02 15:04:05")
		if style == 121 || style == 21 || style == 25 {
			s += frac(scale)
		}
		return s
	case 112:
		return t.Format("20060102")
	case 114, 108:
		return t.Format("15:04:05")
	case 101:
		return t.Format("01/02/2006")
	}
	switch from.Kind {
	case sqltype.DateTime, sqltype.SmallDateTime:
		return t.Format("Jan _2 2006  3:04PM")
	case sqltype.Date:
		return t.Format("2006-01-02")
	case sqltype.Time:
		return t.Format("15:04:05") + frac(scale)
	case sqltype.DateTimeOffset:
		return t.Format("2006-01-02 15:04:05") + frac(scale) + t.Format(" -07:00")
	}
	return t.Format("2006-01-02 15:04:05") + frac(scale)
}

// datePart is a part of DATEADD, DATEDIFF and DATEPART.
type datePart uint8

const (
	partYear datePart = iota
	partQuarter
	partMonth
	partDay
	partWeek
	partHour
	partMinute
	partSecond
	partMillisecond
	partMicrosecond
	partNanosecond
	partDayOfYear
	partWeekday
)

var dateParts = map[string]datePart{
	"year": partYear, "yy": partYear, "yyyy": partYear, "quarter": partQuarter, "qq": partQuarter, "q": partQuarter,
	"month": partMonth, "mm": partMonth, "m": partMonth, "day": partDay, "dd": partDay, "d": partDay,
	"dayofyear": partDayOfYear, "dy": partDayOfYear, "y": partDayOfYear, "week": partWeek, "wk": partWeek, "ww": partWeek,
	"weekday": partWeekday, "dw": partWeekday, "hour": partHour, "hh": partHour, "minute": partMinute, "mi": partMinute, "n": partMinute,
	"second": partSecond, "ss": partSecond, "s": partSecond, "millisecond": partMillisecond, "ms": partMillisecond,
	"microsecond": partMicrosecond, "mcs": partMicrosecond, "nanosecond": partNanosecond, "ns": partNanosecond,
}

// ticksOf is a part of fixed length in units of 100 ns.
var ticksOf = map[datePart]int64{
	partDay: 864_000_000_000, partDayOfYear: 864_000_000_000, partWeekday: 864_000_000_000, partWeek: 6_048_000_000_000,
	partHour: 36_000_000_000, partMinute: 600_000_000, partSecond: 10_000_000, partMillisecond: 10_000, partMicrosecond: 10,
}

// addDate is DATEADD; n fits an int.
func addDate(p datePart, n int64, t time.Time, typ sqltype.Type) (time.Time, bool) {
	switch p {
	case partYear:
		t = addMonths(t, n*12)
	case partQuarter:
		t = addMonths(t, n*3)
	case partMonth:
		t = addMonths(t, n)
	case partNanosecond:
		t = t.Add(time.Duration(n))
	default:
		at := ticks(t) + n*ticksOf[p]
		if at < 0 || at >= ticks(afterLastDay) {
			return t, false
		}
		t = timeOfTicks(at).In(t.Location())
	}
	low := firstDay
	if typ.Kind == sqltype.DateTime || typ.Kind == sqltype.SmallDateTime {
		low = firstOld
	}
	return t, !t.Before(low) && t.Before(afterLastDay)
}

func timeOfTicks(n int64) time.Time {
	return time.Unix(n/10_000_000-62135596800, n%10_000_000*100).UTC()
}

// addMonths keeps the day, or takes the last of the month.
func addMonths(t time.Time, n int64) time.Time {
	y, m, d := t.Date()
	first := time.Date(y, m, 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), t.Location()).AddDate(0, int(n), 0)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(d, last)-1)
}

// diffDate is DATEDIFF: the count of boundaries of the part that are crossed.
func diffDate(p datePart, a, b time.Time) (int64, bool) {
	switch p {
	case partYear:
		return int64(b.Year() - a.Year()), true
	case partQuarter:
		q := func(t time.Time) int64 { return int64(t.Year())*4 + int64(t.Month()-1)/3 }
		return q(b) - q(a), true
	case partMonth:
		m := func(t time.Time) int64 { return int64(t.Year())*12 + int64(t.Month()) }
		return m(b) - m(a), true
	case partWeek:
		// Weeks begin on Sunday, and day 1 of year 1 was a Monday.
		w := func(t time.Time) int64 { return (ticks(t)/ticksOf[partDay] + 1) / 7 }
		return w(b) - w(a), true
	case partNanosecond:
		d := (ticks(b) - ticks(a))
		if d > (1<<63-1)/100 || d < -(1<<63-1)/100 {
			return 0, false
		}
		return d * 100, true
	}
	u := ticksOf[p]
	return ticks(b)/u - ticks(a)/u, true
}

func partOf(p datePart, t time.Time) int64 {
	switch p {
	case partYear:
		return int64(t.Year())
	case partQuarter:
		return int64(t.Month()-1)/3 + 1
	case partMonth:
		return int64(t.Month())
	case partDay:
		return int64(t.Day())
	case partDayOfYear:
		return int64(t.YearDay())
	case partWeekday:
		return int64(t.Weekday()) + 1
	case partHour:
		return int64(t.Hour())
	case partMinute:
		return int64(t.Minute())
	case partSecond:
		return int64(t.Second())
	case partMillisecond:
		return int64(t.Nanosecond() / 1e6)
	case partMicrosecond:
		return int64(t.Nanosecond() / 1e3)
	case partNanosecond:
		return int64(t.Nanosecond())
	}
	_, w := t.ISOWeek()
	return int64(w)
}

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
