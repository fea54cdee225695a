package chanqcron

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/chanq/chanq"
)

// Schedule sends a message at each tick of its line.
//
// When the clock of its zone is put forward, the skipped times tick at the moment of the change. When it is put back,
// the repeated times tick once, the first time. So "30 2 * * *" ticks once on each day. But if the hour field begins
// with *, as in "*/20 * * * *", the line ticks by the clock in each passing hour.
type Schedule[T any] struct {
	// Name identifies the schedule among those of all queues of the schema. On SQL Server the case of letters does not
	// distinguish names. Range: 1 to 100 bytes of UTF-8 without control characters.
	Name string
	// Line says when the schedule ticks: "every 90s", in whole seconds from the start of 1970, or five
	// fields as in cron: minute, hour, day of month, month and day of week. Each is *, a value, a range such as 1-5 or
	// mon-fri, one with a step such as */15, or a list of these. If neither of the fields for days begins with *, a day
	// needs only one of them; otherwise it needs both.
	Line string
	// Zone is the name of the time zone of the line, for example "Europe/Berlin". Default: UTC.
	Zone string
	// CatchUp controls what becomes of ticks in the time in which no process runs. Default: CatchUpLast.
	CatchUp CatchUp
	// Grace is how late a tick can be with CatchUpNone. Default: 1 min. Range: 1 s to 1 year.
	Grace time.Duration
	// MaxMissed is how many ticks CatchUpAll sends at most: the latest ones. Default: 100. Range: 1 to 1000.
	MaxMissed int
	// Overlap controls whether a message is sent while the previous one is still in the queue: ready, scheduled or
	// leased. Default: false, and the tick sends no message.
	Overlap bool
	// Message is what it sends. Its ID, DedupKey, OnDuplicate, DebounceMax and Delay must be unset.
	Message chanq.Message[T]
}

// CatchUp controls what becomes of ticks in the time in which no process runs, or the database is down.
type CatchUp uint8

// The values of CatchUp.
const (
	// CatchUpLast: the last of them is sent.
	CatchUpLast CatchUp = iota
	// CatchUpNone: none later than Schedule.Grace is sent.
	CatchUpNone
	// CatchUpAll: all are sent, the latest Schedule.MaxMissed. It needs Schedule.Overlap.
	CatchUpAll
)

func (c CatchUp) String() string {
	if c > CatchUpAll {
		return fmt.Sprintf("CatchUp(%d)", uint8(c))
	}
	return [...]string{"last", "none", "all"}[c]
}

const (
	maxName       = 100
	maxLine       = 200
	standardGrace = time.Minute
	maxGrace      = 365 * 24 * time.Hour
	standardMost  = 100
	maxMost       = 1000
)

// complete returns the schedule with its defaults, or all that is wrong with it.
func (s Schedule[T]) complete() (Schedule[T], error) {
	var wrong []error
	refuse := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Errorf("Schedule."+format, args...))
		}
	}
	s.Zone, s.Grace, s.MaxMissed = cmp.Or(s.Zone, "UTC"), cmp.Or(s.Grace, standardGrace), cmp.Or(s.MaxMissed, standardMost)
	refuse(!isText(s.Name) || len(s.Name) > maxName || s.Name == "",
		"Name is %.120q, %d bytes: must be 1 to %d bytes of UTF-8 without control characters", s.Name, len(s.Name), maxName)
	_, err := planOf(s.Line, s.Zone)
	wrong = append(wrong, err)
	refuse(s.CatchUp > CatchUpAll, "CatchUp is %v: must be CatchUpLast, CatchUpNone or CatchUpAll", s.CatchUp)
	refuse(s.Grace < time.Second || s.Grace > maxGrace, "Grace is %v: must be %v to %v", s.Grace, time.Second, maxGrace)
	refuse(s.MaxMissed < 1 || s.MaxMissed > maxMost, "MaxMissed is %d: must be 1 to %d", s.MaxMissed, maxMost)
	refuse(s.CatchUp == CatchUpAll && !s.Overlap,
		"Overlap is false: must be true with CatchUpAll, because the missed messages are in the queue together")
	refuse(!s.Message.ID.IsZero(), "Message.ID must be unset: each message has its own")
	refuse(s.Message.DedupKey != "", "Message.DedupKey must be unset: Overlap uses it")
	refuse(s.Message.OnDuplicate != chanq.KeepFirst || s.Message.DebounceMax != 0, "Message.OnDuplicate and Message.DebounceMax must be unset")
	refuse(s.Message.Delay != 0, "Message.Delay is %v: must be 0", s.Message.Delay)
	return s, errors.Join(wrong...)
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }

// plan has the ticks of a row.
type plan struct {
	line
	zone *time.Location
}

func planOf(text, zone string) (plan, error) {
	if len(text) > maxLine {
		return plan{}, fmt.Errorf("line of %d bytes: must be at most %d", len(text), maxLine)
	}
	l, err := parse(text)
	if err != nil {
		return plan{}, fmt.Errorf("line %q: %w", text, err)
	}
	z, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return plan{}, fmt.Errorf("zone %.80q: must be a name of the IANA database that this program has, for example "+
			"\"Europe/Berlin\" (import time/tzdata to have all)", zone)
	}
	return plan{l, z}, nil
}

// passed returns the ticks from next until now, the latest most of them, and the first one after now.
func (p plan) passed(next, now time.Time, most int) (ticks []time.Time, following time.Time) {
	for ; !next.After(now); next = p.next(next, p.zone) {
		if ticks = append(ticks, next); len(ticks) > most {
			ticks = ticks[1:]
		}
	}
	return ticks, next
}

// The headers of a message that a schedule has sent.
const (
	headerName = "chanq-schedule"
	headerTick = "chanq-tick"
)

// headers returns the headers of a message of a schedule. A message of Schedules.Send has a zero tick.
func headers(given map[string]string, name string, tick time.Time) map[string]string {
	h := maps.Clone(given)
	if h == nil {
		h = map[string]string{}
	}
	h[headerName] = name
	if !tick.IsZero() {
		h[headerTick] = tick.UTC().Format(time.RFC3339)
	}
	return h
}

// Tick returns the time of the tick for which a schedule sent a message, for example to report on the day before. It is
// earlier than the message if the tick was missed. It returns false for any other message, also for one of Schedules.Send.
func Tick(d *chanq.Delivery) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, d.Headers[headerTick])
	return at, err == nil
}
