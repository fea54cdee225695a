package chanqweb

import (
	"context"
	"time"

	"github.com/chanq/chanq"
)

// History is what queues were like, where it is not chanq's own: see Config.History.
type History interface {
	// History returns the samples of a queue as chanq.Queue.History does. It is called by many
	// goroutines.
	History(ctx context.Context, queue string, since time.Time, step time.Duration) ([]chanq.Sample, error)
}

// span is a time that charts show.
type span struct {
	Name   string
	Last   time.Duration
	step   time.Duration
	Places []string // of times below a chart, from its beginning to its end
}

var spans = []span{
	{"hour", time.Hour, chanq.StepFine, []string{"1 h ago", "45 min", "30 min", "15 min", "now"}},
	{"day", 24 * time.Hour, chanq.StepMinute, []string{"1 day ago", "18 h", "12 h", "6 h", "now"}},
	{"week", 7 * 24 * time.Hour, chanq.StepHour, []string{"7 days ago", "5", "3", "1", "now"}},
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
func (h *Handler) samples(ctx context.Context, queue string, since time.Time, step time.Duration) ([]chanq.Sample, error) {
	if h.cfg.History != nil {
		return h.cfg.History.History(ctx, queue, since, step)
	}
	q, _, err := h.store.queue(ctx, queue)
	if err != nil {
		return nil, err
	}
	return q.History(ctx, since, step)
}

// lastHour are the samples of minutes, of now or of a moment ago.
func (h *Handler) lastHour(ctx context.Context, queue string, now time.Time) (list []chanq.Sample, err error) {
	if list, known := h.store.sampled(queue, now); known {
		return list, nil
	}
	list, err = h.samples(ctx, queue, now.Add(-time.Hour), chanq.StepMinute)
	if err == nil {
		h.store.keepSamples(queue, now, list)
	}
	return list, err
}
