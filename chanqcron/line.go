package chanqcron

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// The days and times that a line selects, in the time that a clock on the wall shows. zone.go maps them to ticks.

// line is a parsed Schedule.Line.
type line struct {
	every time.Duration // of "every 90s"; otherwise 0
	// Bit n is set if the value n is selected.
	minutes, hours, days, months, weekdays uint64
	// eitherDay: a day needs only one of days and weekdays, because neither of these fields begins with *.
	eitherDay bool
	// clock: the hour field begins with *.
	clock bool
}

// field is one of the five fields of a line.
type field struct {
	name  string
	least int
	most  int
	names []string // of the values from least on
}

var fields = [...]field{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of week", 0, 7, strings.Fields("sun mon tue wed thu fri sat")}, // 7 is Sunday, too
}

const everyPrefix = "every "

// parse parses a line. Its errors begin with the column of the fault, from 1 on.
func parse(text string) (line, error) {
	if rest, is := strings.CutPrefix(text, everyPrefix); is {
		d, err := time.ParseDuration(rest)
		if err != nil || d < time.Second || d%time.Second != 0 {
			return line{}, fmt.Errorf("column %d: %q: must be a duration of whole seconds, at least 1s",
				len(everyPrefix)+1, rest)
		}
		return line{every: d}, nil
	}
	words := strings.FieldsFunc(text, isBlank)
	if len(words) != len(fields) {
		return line{}, fmt.Errorf("%d fields: must be %d: minute, hour, day of month, month, day of week", len(words),
			len(fields))
	}
	var sets [len(fields)]uint64
	column := 0 // of the next word, from 0 on
	for i, word := range words {
		column += strings.Index(text[column:], word)
		for item := range strings.SplitSeq(word, ",") {
			set, err := fields[i].parse(item)
			if err != nil {
				return line{}, fmt.Errorf("column %d: %s: %w", column+1, fields[i].name, err)
			}
			sets[i] |= set
			column += len(item) + 1
		}
		column--
	}
	l := line{
		minutes: sets[0], hours: sets[1], days: sets[2], months: sets[3], weekdays: sets[4] | sets[4]>>7,
		eitherDay: words[2][0] != '*' && words[4][0] != '*', clock: words[1][0] == '*',
	}
	if _, some := l.after(time.Time{}); !some {
		return line{}, errors.New("no day matches, such as February 30")
	}
	return l, nil
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' }

// parse returns the values of an item: *, 5, 5-10, and each with a step, for example */15. 5/15 begins at 5.
func (f field) parse(item string) (set uint64, err error) {
	values, by, stepped := strings.Cut(item, "/")
	low, high, step := f.least, f.most, 1
	if stepped {
		if step, err = strconv.Atoi(by); err != nil || step < 1 || step > f.most {
			return 0, fmt.Errorf("step %q: must be 1 to %d", by, f.most)
		}
	}
	if values != "*" {
		from, to, isRange := strings.Cut(values, "-")
		if low, err = f.value(from); err != nil {
			return 0, err
		}
		switch {
		case isRange:
			if high, err = f.value(to); err != nil {
				return 0, err
			}
		case !stepped:
			high = low
		}
		if high < low {
			return 0, fmt.Errorf("%q: must not begin after its end", values)
		}
	}
	for n := low; n <= high; n += step {
		set |= 1 << n
	}
	return set, nil
}

func (f field) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.least + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.least || n > f.most || text[0] == '+' {
		return 0, fmt.Errorf("%q: must be %d to %d", text, f.least, f.most)
	}
	return n, nil
}

// onDay reports whether the line selects a day.
func (l line) onDay(day time.Time) bool {
	if l.months&(1<<day.Month()) == 0 {
		return false
	}
	date, weekday := l.days&(1<<day.Day()) != 0, l.weekdays&(1<<day.Weekday()) != 0
	if l.eitherDay {
		return date || weekday
	}
	return date && weekday
}

// mostDays is after how many days the calendar repeats: 400 years are whole weeks.
const mostDays = 146_097

// after returns the first selected minute after the time that a clock shows, given as a time in UTC. There is none if
// no day matches.
func (l line) after(shown time.Time) (time.Time, bool) {
	shown = shown.Truncate(time.Minute).Add(time.Minute)
	day := shown.Truncate(24 * time.Hour) // of the first year, so that days are multiples
	least := int(shown.Sub(day) / time.Minute)
	for range mostDays + 1 {
		if l.onDay(day) {
			if at, is := l.inDay(least); is {
				return day.Add(time.Duration(at) * time.Minute), true
			}
		}
		day, least = day.Add(24*time.Hour), 0
	}
	return time.Time{}, false
}

// inDay returns the first selected minute of a day from least on.
func (l line) inDay(least int) (minute int, is bool) {
	hour := least / 60
	if l.hours&(1<<hour) != 0 {
		if rest := l.minutes >> (least % 60); rest != 0 {
			return least + bits.TrailingZeros64(rest), true
		}
	}
	if rest := l.hours >> (hour + 1); rest != 0 {
		return (hour+1+bits.TrailingZeros64(rest))*60 + bits.TrailingZeros64(l.minutes), true
	}
	return 0, false
}
