package chanqweb

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/chanq/chanq/chanqadmin"
)

// The text of numbers, times and strings on pages.

// limited formats a count that has a limit.
func limited(n, limit int) string {
	if n >= limit {
		return grouped(int64(limit)) + "+"
	}
	return grouped(int64(n))
}

// Count formats the count of a state, or its estimate.
func (f figures) Count(state chanqadmin.State, n int) string {
	if about := f.Estimate(state); n >= f.Limit && about > 0 {
		return chanqadmin.About(about)
	}
	return limited(n, f.Limit)
}

// grouped formats a number with thin spaces between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "\u2009" + digits[i:]
	}
	return digits
}

func amount(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return grouped(int64(math.Round(v)))
}

func perSecond(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v != 0 && v < 10:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return amount(v)
}

func seconds(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return lasting(time.Duration(math.Round(v*1000)) * time.Millisecond)
}

// lasting formats a duration in its two largest units.
func lasting(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	units := []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := fmt.Sprintf("%d %s", d/u.of, u.name)
		if i+1 < len(units) {
			if rest := d % u.of / units[i+1].of; rest > 0 {
				text += fmt.Sprintf(" %d %s", rest, units[i+1].name)
			}
		}
		return text
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// freshFor is the age up to which figures are fresh: green. Pages update every 2 s.
const freshFor = 5 * time.Second

// stale reports whether figures are not fresh.
func stale(at, now time.Time) bool { return now.Sub(at) > freshFor }

// old formats the age of figures that are stale; "" if there are none, or fresh ones.
func old(at, now time.Time) string {
	if !at.IsZero() && stale(at, now) {
		return lasting(now.Sub(at))
	}
	return ""
}

// ago formats the distance of a time from now.
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "–"
	case d < -time.Second:
		return "in " + lasting(-d)
	case d < time.Second:
		return "now"
	default:
		return lasting(d) + " ago"
	}
}

// exact formats a time for people, and stamp for the datetime attribute.
func exact(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// sized formats a count of bytes.
func sized(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// printable replaces control characters, invisible characters and characters that change the writing direction with their
// numbers.
func printable(s string) string {
	if !strings.ContainsFunc(s, concealed) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if concealed(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// clip returns a text up to about n bytes.
func clip(s string, n int) string {
	if len(s) > n {
		return printable(strings.ToValidUTF8(s[:n], "")) + "…"
	}
	return printable(s)
}

func concealed(r rune) bool {
	switch r {
	case '\n', '\t', ' ':
		return false
	case '\u2028', '\u2029':
		return true
	}
	return !unicode.IsPrint(r)
}

// brief returns the first line of a text, at most n characters.
func brief(s string, n int) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
	runes := []rune(printable(strings.TrimSpace(first)))
	switch {
	case len(runes) > n:
		return string(runes[:n-1]) + "…"
	case rest != "":
		return string(runes) + " …"
	}
	return string(runes)
}

// whenOf returns the end of the lease of a leased message, the end of a dead or done message, and the due time of any other
// message.
func whenOf(e chanqadmin.Entry) time.Time {
	switch e.State {
	case chanqadmin.StateLeased:
		return e.LeaseUntil
	case chanqadmin.StateDead, chanqadmin.StateDone:
		return e.EndedAt
	}
	return e.DueAt
}

// holder identifies the consumer that holds the lease: by its name, or by its ID if the name has been deleted.
func holder(e chanqadmin.Entry) string {
	switch {
	case e.LeasedBy != "":
		return printable(e.LeasedBy)
	case !e.Consumer.IsZero():
		return e.Consumer.String()
	}
	return ""
}
