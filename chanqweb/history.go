package chanqweb

import (
	"context"
	"fmt"
	"time"

	"github.com/chanq/chanq/chanqadmin"
)

// History is what queues were like, where it is not chanq's own: see Config.History.
type History interface {
	// History returns the samples of a queue as chanqadmin.Queue.History does. It is called by many
	// goroutines.
	History(ctx context.Context, queue string, since time.Time, step time.Duration) ([]chanqadmin.Sample, error)
}

// span is a time that charts show.
type span struct {
	Name   string
	Last   time.Duration
	step   time.Duration
	Places []string // of times below a chart, from its beginning to its end
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

// samples are those of a time.
func (h *Handler) samples(v *visit, queue string, since time.Time, step time.Duration) ([]chanqadmin.Sample, error) {
	if h.cfg.History != nil {
		return h.cfg.History.History(v.ctx, queue, since, step)
	}
	q, _, err := h.store.queue(v.ctx, queue)
	if err != nil {
		return nil, err
	}
	return q.History(v.ctx, since, step)
}

// lastHour are the samples of minutes, of now or of a moment ago.
func (h *Handler) lastHour(v *visit, queue string) (list []chanqadmin.Sample, err error) {
	if list, known := h.store.sampled(queue, v.now); known {
		return list, nil
	}
	list, err = h.samples(v, queue, v.now.Add(-time.Hour), chanqadmin.StepMinute)
	if err == nil {
		h.store.keepSamples(queue, v.now, list)
	}
	return list, err
}

// growing reports whether a sample is, or may be, of a time that is not over: by clocks that may
// be apart, the database's and the page's, for as long as there could be one after it.
func growing(s chanqadmin.Sample, step time.Duration, now time.Time) bool {
	return now.Sub(s.At) < 2*step
}

// ended are samples without the last one, while that may grow.
func ended(list []chanqadmin.Sample, step time.Duration, now time.Time) []chanqadmin.Sample {
	if n := len(list); n > 0 && growing(list[n-1], step, now) {
		return list[:n-1]
	}
	return list
}

// lastWhole is the last sample of a time that is over, if it is of just now.
func lastWhole(list []chanqadmin.Sample, step time.Duration, now time.Time) (last chanqadmin.Sample, ok bool) {
	list = ended(list, step, now)
	if len(list) == 0 || quietSince(list, step, now) != "" {
		return last, false
	}
	return list[len(list)-1], true
}

// quietSince says since when there are no samples; "" where the last one is of just now.
func quietSince(list []chanqadmin.Sample, step time.Duration, now time.Time) string {
	end := list[len(list)-1].At.Add(step)
	if now.Sub(end) <= 2*step {
		return ""
	}
	return fmt.Sprintf("nothing since %s (%s)", end.UTC().Format("15:04 UTC"), ago(end, now))
}
