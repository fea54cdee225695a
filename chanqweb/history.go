package chanqweb

import (
	"context"
	"fmt"
	"time"

	"github.com/chanq/chanq/chanqadmin"
)

// History is a source of samples other than chanq's own: see Config.History.
type History interface {
	// History returns the samples of a queue as chanqadmin.Queue.History does. It is called concurrently.
	History(ctx context.Context, queue string, since time.Time, step time.Duration) ([]chanqadmin.Sample, error)
}

// span is a period that charts show.
type span struct {
	Name   string
	Last   time.Duration
	step   time.Duration
	Places []string // labels below a chart, from left to right
}

var spans = []span{
	{"hour", time.Hour, chanqadmin.StepFine, []string{"1 h ago", "45 min", "30 min", "15 min", "now"}},
	{"day", 24 * time.Hour, chanqadmin.StepMinute, []string{"1 day ago", "18 h", "12 h", "6 h", "now"}},
	{"week", 7 * 24 * time.Hour, chanqadmin.StepHour, []string{"7 days ago", "5", "3", "1", "now"}},
}

func spanNamed(name string) span {
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	return spans[0]
}

// growing reports whether the period of a sample might not be over. The clocks of the database and of this process may differ, so it
// returns true until there could be a later sample.
func growing(s chanqadmin.Sample, step time.Duration, now time.Time) bool {
	return now.Sub(s.At) < 2*step
}

// ended returns the samples without the last one if it might grow.
func ended(list []chanqadmin.Sample, step time.Duration, now time.Time) []chanqadmin.Sample {
	if n := len(list); n > 0 && growing(list[n-1], step, now) {
		return list[:n-1]
	}
	return list
}

// lastWhole returns the last complete sample, if it is recent.
func lastWhole(list []chanqadmin.Sample, step time.Duration, now time.Time) (last chanqadmin.Sample, ok bool) {
	list = ended(list, step, now)
	if len(list) == 0 || quietSince(list, step, now) != "" {
		return last, false
	}
	return list[len(list)-1], true
}

// quietSince returns the time since which there are no samples, or "" if the last one is recent.
func quietSince(list []chanqadmin.Sample, step time.Duration, now time.Time) string {
	end := list[len(list)-1].At.Add(step)
	if now.Sub(end) <= 2*step {
		return ""
	}
	return fmt.Sprintf("nothing since %s (%s)", end.UTC().Format("15:04 UTC"), ago(end, now))
}
