package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/prove/chaos/record"
)

// mostStill is the longest time in which a queue under load may store or settle nothing: while one process hangs, the
// others continue.
const mostStill = 10 * time.Second

// report prints what happened, and returns an error if a guarantee was broken.
func (r *run) report(ctx context.Context) (record.Verdict, error) {
	h, out := r.history, r.out
	v := h.Judge()
	t, _ := h.Totals(0)
	dead, err := r.deadLettered(ctx, v)
	if err != nil {
		v.Faults = append(v.Faults, err.Error())
	}
	sends, settles := h.Still(r.drained)
	if still := max(sends, settles); r.Spared > 0 && still > mostStill {
		v.Faults = append(v.Faults, fmt.Sprintf("the queue stood still for %v", still))
	}
	if v.Deliveries == 0 || r.HoldEvery > 0 && r.holds == 0 {
		return v, errors.New("nothing was delivered, or no transaction was held open")
	}
	fmt.Fprintf(out, "%v: %d workers, %d killed, %d stopped for %v, %d left and came again\n",
		time.Since(r.began).Round(time.Second/10), len(r.All), t.Kills, r.stops, 2*r.LeaseFor, r.leaves)
	fmt.Fprintf(out, "%d operations failed, %d connections frozen, rows locked %d times, transactions held open %d times\n",
		t.Faults, t.Frozen, t.Locked, r.holds)
	fmt.Fprintln(out, v)
	fmt.Fprintf(out, "leases lost: %d of locked rows, %d that came late over a frozen connection\n", v.LostLocked, v.LostSlow)
	fmt.Fprintf(out, "confirmed ends: %d acked, %d dead-lettered; %d in the dead table\n", v.Acked, v.DeadLettered, dead)
	fmt.Fprintf(out, "due to delivered: %s; longest time without a confirmed send %v, without a confirmed settle %v\n",
		quantiles(h.Latencies()), sends.Round(time.Millisecond), settles.Round(time.Millisecond))
	if fatal, lost := h.LostInARow(); fatal > 0 {
		fmt.Fprintf(out, "%d deadly messages; innocent ones that lost at most 0, 1, 2, … leases in a row: %v\n", fatal, lost)
	}
	if n := len(r.samples); n > 0 {
		first, last := r.samples[:(n+2)/3], r.samples[n*2/3:] // thirds
		heap := func(u record.Usage) uint64 { return u.Heap }
		goroutines := func(u record.Usage) uint64 { return uint64(u.Goroutines) }
		fmt.Fprintf(out, "most of the worker that lived on, in the first and the last third: heap %.1f and %.1f MiB, goroutines %d and %d\n",
			mib(int64(most(first, heap))), mib(int64(most(last, heap))), most(first, goroutines), most(last, goroutines))
	}
	if len(v.Faults) == 0 {
		_, err := fmt.Fprintln(out, "0 lost, 0 delivered after a confirmed end, 0 out of order, 0 unexplained")
		return v, err
	}
	for _, fault := range v.Faults[:min(20, len(v.Faults))] {
		fmt.Fprintln(out, fault)
	}
	return v, fmt.Errorf("%d broken promises", len(v.Faults))
}

const sampleHeader = "   time       sent     stored  delivered    settled    live  table MiB  dead rows  heap MiB  goroutines  kills  faults"

// sample prints what the workers did so far, and the state of the queue.
func (r *run) sample() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	live, _, err := r.queue.stats(ctx)
	if err != nil {
		return err
	}
	var bytes int64        // of the table and its indexes
	var dead sql.NullInt64 // rows or pages to be reclaimed
	size, rows := "-", "-" // a server might not show them
	if err := r.queue.where[0].DB.QueryRowContext(ctx, r.engine(0).size).Scan(&bytes, &dead); err == nil {
		size, rows = fmt.Sprintf("%.1f", mib(bytes)), fmt.Sprint(dead.Int64)
	}
	t, usage := r.history.Totals(0)
	r.samples = append(r.samples, usage)
	_, err = fmt.Fprintf(r.out, "%7.1f %10d %10d %10d %10d %7d %10s %10s %9.1f %11d %6d %7d\n", time.Since(r.began).Seconds(),
		t.Sent, t.Stored, t.Delivered, t.Settled, live, size, rows,
		mib(int64(usage.Heap)), usage.Goroutines, t.Kills, t.Faults)
	return err
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// quantiles returns how times are distributed.
func quantiles(times []time.Duration) string {
	if len(times) == 0 {
		return "none"
	}
	times = slices.Sorted(slices.Values(times))
	at := func(share float64) time.Duration {
		return times[int(share*float64(len(times)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %v, p90 %v, p99 %v, p99.9 %v, most %v", at(0.5), at(0.9), at(0.99), at(0.999), at(1))
}

func most(samples []record.Usage, of func(record.Usage) uint64) (m uint64) {
	for _, s := range samples {
		m = max(m, of(s))
	}
	return m
}
