package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/chanq/chanq"
)

// report prints the record's end, and returns an error if a promise was broken.
func report(out io.Writer, c *crew, w *watch) error {
	v := c.judge()
	_, faults, kills := c.totals()
	buried, err := w.queue.Purge(context.Background(), chanq.StateDead)
	if err != nil {
		return err
	}
	if buried < v.buried {
		v.broken = append(v.broken, fmt.Sprintf("LOST: %d messages were dead-lettered, %d are in the dead table", v.buried, buried))
	}
	latencies := c.latencies()
	if len(latencies) == 0 {
		return errors.New("nothing was delivered")
	}
	at := func(share float64) time.Duration {
		return time.Duration(latencies[int(share*float64(len(latencies)-1))]).Round(10 * time.Microsecond)
	}
	fmt.Fprintf(out, `
%d messages, %d of them confirmed to their senders; %d kills, %d connections broken, %d frozen, %d rows locked
delivered once %d, again %d: asked for by nack or release %d, holder killed %d,
  settle failed or not known %d, INSERT repeated after a broken answer %d
leases lost: %d of locked rows, %d that came late over a frozen connection
confirmed ends: %d acked, %d dead-lettered; %d in the dead table
due to delivered: p50 %v, p99 %v, p99.9 %v, most %v
heap of the worker that lived on: %.1f MiB in the first third, %.1f in the last (most of each); goroutines %d and %d
`,
		v.messages, v.stored, kills, faults, c.frozen(), c.ledger.locked(),
		v.first, v.asked+v.killed+v.failed+v.repeated, v.asked, v.killed, v.failed, v.repeated,
		v.lostLocked, v.lostLate,
		v.acked, v.buried, buried,
		at(0.5), at(0.99), at(0.999), at(1),
		mib(int64(most(firstThird(w.samples), heapOf))), mib(int64(most(lastThird(w.samples), heapOf))),
		most(firstThird(w.samples), goroutinesOf), most(lastThird(w.samples), goroutinesOf))
	if len(v.broken) == 0 {
		_, err := fmt.Fprintln(out, "0 lost, 0 delivered after a confirmed end, 0 unexplained")
		return err
	}
	const shown = 20
	for _, b := range v.broken[:min(shown, len(v.broken))] {
		fmt.Fprintln(out, b)
	}
	return fmt.Errorf("%d broken promises", len(v.broken))
}

func firstThird(s []sample) []sample { return s[:(len(s)+2)/3] }

func lastThird(s []sample) []sample { return s[len(s)*2/3:] }

func most(samples []sample, of func(sample) uint64) (m uint64) {
	for _, s := range samples {
		m = max(m, of(s))
	}
	return m
}

func heapOf(s sample) uint64       { return s.usage.heap }
func goroutinesOf(s sample) uint64 { return uint64(s.usage.goroutines) }
