package chanqfindings

import (
	"fmt"
	"strconv"
	"time"
)

// lasting returns a duration in words, in at most two units: 8 s, 19 min, 2 h 5 min, 3 days 4 h.
func lasting(d time.Duration) string {
	pair := func(n int64, unit string, rest int64, less string) string {
		if rest == 0 {
			return fmt.Sprintf("%d %s", n, unit)
		}
		return fmt.Sprintf("%d %s %d %s", n, unit, rest, less)
	}
	s := int64(d / time.Second)
	switch {
	case s < 1:
		return "less than 1 s"
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 10*60:
		return pair(s/60, "min", s%60, "s")
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return pair(s/3600, "h", s%3600/60, "min")
	}
	return pair(s/86400, "days", s%86400/3600, "h")
}

// counted returns a number, and what is counted. At limit there might be more.
func counted(n, limit int, what string) string {
	text := grouped(n)
	if n >= limit {
		text += " or more"
	}
	if n != 1 {
		what += "s"
	}
	return text + " " + what
}

// grouped separates thousands.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// verb returns the end of a verb, has and are a form of have and be, for a number of messages.
func verb(n int) string {
	if n == 1 {
		return "s"
	}
	return ""
}

func has(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
