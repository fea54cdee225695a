package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// trend is the last hour of a queue, from its history.
type trend struct {
	looked  time.Time
	known   bool    // a history of the last minute exists
	in, out float64 // messages per second
	times
	depths []int // the maximum of ready messages per minute, oldest first; below zero: unknown
}

// trendEvery is how often the history is read: it is not updated more often.
const trendEvery = chanqadmin.StepFine

// look returns the trend from the history, or t if that was read just now.
func (t trend) look(ctx context.Context, q *chanqadmin.Queue) (trend, error) {
	now := time.Now()
	if now.Sub(t.looked) < trendEvery {
		return t, nil
	}
	fine, times, err := lastMinute(ctx, q)
	if errors.Is(err, chanq.ErrNoSchema) { // tables of an earlier version
		return trend{looked: now}, nil
	}
	if err != nil {
		return t, err
	}
	minutes, err := q.History(ctx, now.Add(-time.Hour), chanqadmin.StepMinute)
	if err != nil {
		return t, err
	}
	t = trend{looked: now, times: times, depths: depths(now, minutes)}
	t.in, t.out, t.known = rates(fine)
	return t, nil
}

// lastMinute returns the samples of the last minute, and their times.
func lastMinute(ctx context.Context, q *chanqadmin.Queue) (fine []chanqadmin.Sample, t times, err error) {
	fine, err = q.History(ctx, time.Now().Add(-time.Minute-chanqadmin.StepFine), chanqadmin.StepFine)
	for _, s := range fine {
		t.waits.Add(s.Waits)
		t.calls.Add(s.Calls)
	}
	return fine, t, err
}

// rates returns those of the samples without the last, which still grows, unless it is the only
// one.
func rates(fine []chanqadmin.Sample) (in, out float64, known bool) {
	if len(fine) > 1 {
		fine = fine[:len(fine)-1]
	}
	var sent, acked int64
	for _, s := range fine {
		sent, acked = sent+s.Sent, acked+s.Acked
	}
	if len(fine) == 0 {
		return 0, 0, false
	}
	last := fine[len(fine)-1]
	span := last.At.Add(last.Step).Sub(fine[0].At).Seconds()
	return float64(sent) / span, float64(acked) / span, true
}

// depths returns a value for each minute of the hour before now.
func depths(now time.Time, minutes []chanqadmin.Sample) []int {
	if len(minutes) == 0 {
		return nil
	}
	list := make([]int, 60)
	for i := range list {
		list[i] = -1
	}
	for _, s := range minutes {
		if i := 59 - int(now.Sub(s.At)/time.Minute); s.Counted && i >= 0 && i < len(list) {
			list[i] = s.Ready
		}
	}
	return list
}

// sparkWidth is the number of characters of an hour's sparkline.
const sparkWidth = 20

// sparkline draws the maximum of each part of a list, and a blank for unknown values.
func sparkline(list []int) string {
	if len(list) == 0 {
		return "-"
	}
	const levels = "▁▂▃▄▅▆▇█"
	most := 0
	parts := make([]int, sparkWidth)
	for i := range parts {
		parts[i] = -1
	}
	for i, n := range list {
		part := i * sparkWidth / len(list)
		parts[part] = max(parts[part], n)
		most = max(most, n)
	}
	var b strings.Builder
	for _, n := range parts {
		switch {
		case n < 0:
			b.WriteRune('·')
		case most == 0:
			b.WriteRune('▁')
		default:
			b.WriteRune([]rune(levels)[n*7/most])
		}
	}
	return b.String()
}

// rate formats messages per second, in few digits.
func rate(r float64) string {
	if r > 0 && r < 10 {
		return fmt.Sprintf("%.1f", r)
	}
	return fmt.Sprintf("%.0f", r)
}
