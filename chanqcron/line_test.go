package chanqcron

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"
)

func TestABadLineNamesItsColumn(t *testing.T) {
	for text, want := range map[string]string{
		"":                    `0 fields: must be 5: minute, hour, day of month, month, day of week`,
		"0 2 * *":             `4 fields: must be 5: minute, hour, day of month, month, day of week`,
		"0 2 * * * *":         `6 fields: must be 5: minute, hour, day of month, month, day of week`,
		"@daily":              `1 fields: must be 5: minute, hour, day of month, month, day of week`,
		"61 * * * *":          `column 1: minute: "61": must be 0 to 59`,
		"-1 * * * *":          `column 1: minute: "": must be 0 to 59`,
		"+1 * * * *":          `column 1: minute: "+1": must be 0 to 59`,
		"0 24 * * *":          `column 3: hour: "24": must be 0 to 23`,
		"0 5-2 * * *":         `column 3: hour: "5-2": must not begin after its end`,
		"0 0 0 * *":           `column 5: day of month: "0": must be 1 to 31`,
		"0 2 1,32 * *":        `column 7: day of month: "32": must be 1 to 31`,
		"0 2 1, * *":          `column 7: day of month: "": must be 1 to 31`,
		"0 0 1 13 *":          `column 7: month: "13": must be 1 to 12`,
		"0 2 * * foo":         `column 9: day of week: "foo": must be 0 to 7`,
		"  0\t2  *  *   foo":  `column 15: day of week: "foo": must be 0 to 7`,
		"2 2 2 2 8":           `column 9: day of week: "8": must be 0 to 7`,
		"*/0 * * * *":         `column 1: minute: step "0": must be 1 to 59`,
		"0 0 * * mon-fri/x":   `column 9: day of week: step "x": must be 1 to 7`,
		"0 0 L * *":           `column 5: day of month: "L": must be 1 to 31`,
		"0 0 30 2 *":          `no day matches, such as February 30`,
		"0 0 31 2,4,6,9,11 *": `no day matches, such as February 30`,
		"every 1.5s":          `column 7: "1.5s": must be a duration of whole seconds, at least 1s`,
		"every 0s":            `column 7: "0s": must be a duration of whole seconds, at least 1s`,
		"every day":           `column 7: "day": must be a duration of whole seconds, at least 1s`,
		"every ":              `column 7: "": must be a duration of whole seconds, at least 1s`,
	} {
		_, err := parse(text)
		require.EqualError(t, err, want, text)
	}
}

func TestALineSelectsTimes(t *testing.T) {
	for text, want := range map[string]string{
		"30 2 * * *":          "01-01 02:30, 01-02 02:30",
		"5,10-12 0 1 1 *":     "01-01 00:05, 01-01 00:10, 01-01 00:11, 01-01 00:12, 01-01 00:05",
		"10-30/10 8 * * *":    "01-01 08:10, 01-01 08:20, 01-01 08:30, 01-02 08:10",
		"50/5 * * * *":        "01-01 00:50, 01-01 00:55, 01-01 01:50",
		"0 22-23/1 31 * *":    "01-31 22:00, 01-31 23:00, 03-31 22:00",
		"0 0 29 2 *":          "02-29 00:00, 02-29 00:00",
		"0 12 13 * fri":       "01-05 12:00, 01-12 12:00, 01-13 12:00", // either day
		"0 12 */2 * fri":      "01-05 12:00, 01-19 12:00",              // both days
		"0 0 * * 7":           "01-07 00:00, 01-14 00:00",
		"0 0 * * SUN,Sat":     "01-06 00:00, 01-07 00:00",
		"0 0 1 feb,jun-Jul *": "02-01 00:00, 06-01 00:00, 07-01 00:00",
		"* * * * *":           "01-01 00:01, 01-01 00:02",
		"59 23 31 12 *":       "12-31 23:59, 12-31 23:59",
	} {
		l, err := parse(text)
		require.NoError(t, err, text)
		var got []string
		at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC) // a Monday
		for range strings.Count(want, ",") + 1 {
			at = l.next(at, time.UTC)
			got = append(got, at.Format("01-02 15:04"))
		}
		require.Equal(t, want, strings.Join(got, ", "), text)
	}
}

func TestEveryCountsFromTheUnixEpoch(t *testing.T) {
	l, err := parse("every 90s")
	require.NoError(t, err)
	at := time.Date(2024, 1, 1, 0, 1, 0, 1, time.UTC)
	for range 5 {
		next := l.next(at, time.UTC)
		require.True(t, next.After(at))
		require.Zero(t, next.Unix()%90)
		require.LessOrEqual(t, next.Sub(at), 90*time.Second)
		at = next
	}
}

// FuzzLine finds lines whose first ticks are not the ones that a walk over all minutes finds, or that make parse panic.
func FuzzLine(f *testing.F) {
	for _, text := range []string{"30 2 * * *", "*/7 */3 * * *", "0 0 29 2 */7", "5/5 1-3 1,15 jan-Mar mon", "every 90s", "every x", "* * * * * *", "0,0 0 0-9 * 7"} {
		f.Add(text, int64(1_700_000_000))
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string, from int64) {
		l, err := parse(text)
		if err != nil || l.every > 0 {
			return
		}
		start := time.Unix(from%4e9, 0)
		got := l.next(start, berlin)
		if want, some := first(l, berlin, start, 400*time.Hour); some || got.Before(start.Add(400*time.Hour)) {
			require.True(t, some && want.Equal(got), "%q after %v: %v, want %v", text, start.In(berlin), got.In(berlin), want.In(berlin))
		}
	})
}
