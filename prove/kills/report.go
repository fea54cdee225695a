package kills

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// mostStill is the longest time in which a queue under load may store or settle nothing: while one process hangs, the others continue.
const mostStill = 10 * time.Second

// report prints the end of the record, and returns an error if a guarantee was broken.
func report(out io.Writer, w *workers) error {
	v := w.history.Judge()
	t, _ := w.history.totals(0)
	deadLettered, err := w.deadLettered(w.history, v)
	if err != nil {
		v.Faults = append(v.Faults, err.Error())
	}
	sends, settles := w.history.still(w.drained)
	if still := max(sends, settles); still > mostStill {
		v.Faults = append(v.Faults, fmt.Sprintf("the queue stood still for %v", still))
	}
	if v.Deliveries == 0 {
		return errors.New("nothing was delivered")
	}
	n := len(w.samples)
	first, last := w.samples[:(n+2)/3], w.samples[n*2/3:] // thirds
	fmt.Fprintf(out, `
%d messages, %d of them confirmed to their senders; %d kills, %d operations failed, %d frozen, %d rows locked
delivered once %d, again %d: asked for by nack or release %d, holder killed %d,
  settle failed or not known %d, INSERT repeated after a broken answer %d
leases lost: %d of locked rows, %d that came late over a frozen connection
confirmed ends: %d acked, %d dead-lettered; %d in the dead table
due to delivered: %s
longest time without a confirmed send %v, without a confirmed settle %v
heap of the worker that lived on: %.1f MiB in the first third, %.1f in the last (most of each); goroutines %d and %d
`,
		v.Messages, v.Stored, t.kills, t.faults, t.frozen, t.locked,
		v.Delivered, v.Duplicates.total(), v.Duplicates.Asked, v.Duplicates.Killed, v.Duplicates.Informed, v.Duplicates.Again,
		v.LostLocked, v.LostSlow,
		v.Acked, v.DeadLettered, deadLettered,
		Quantiles(w.history.Latencies()),
		sends.Round(time.Millisecond), settles.Round(time.Millisecond),
		mib(int64(most(first, heapOf))), mib(int64(most(last, heapOf))), most(first, goroutinesOf), most(last, goroutinesOf))
	if len(v.Faults) == 0 {
		_, err := fmt.Fprintln(out, "0 lost, 0 delivered after a confirmed end, 0 unexplained")
		return err
	}
	const shown = 20
	for _, b := range v.Faults[:min(shown, len(v.Faults))] {
		fmt.Fprintln(out, b)
	}
	return fmt.Errorf("%d broken promises", len(v.Faults))
}

// Quantiles returns how times are distributed.
func Quantiles(times []time.Duration) string {
	if len(times) == 0 {
		return "none"
	}
	times = slices.Sorted(slices.Values(times))
	at := func(share float64) time.Duration {
		return times[int(share*float64(len(times)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %v, p90 %v, p99 %v, p99.9 %v, most %v", at(0.5), at(0.9), at(0.99), at(0.999), at(1))
}

func most(samples []usage, of func(usage) uint64) (m uint64) {
	for _, s := range samples {
		m = max(m, of(s))
	}
	return m
}

func heapOf(u usage) uint64       { return u.Heap }
func goroutinesOf(u usage) uint64 { return uint64(u.Goroutines) }
