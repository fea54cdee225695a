package claim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/table"
)

// The rescans of a consumer: see head.go. They are made while there is room for messages. The first one precedes the first claim,
// which would otherwise walk over what the rescan walks over, with its leases running. An idle consumer makes one in place of its
// look.
//
// Claims wait for a rescan, on their own session, as long as rescans are quick. One that follows on a slow one runs in a goroutine
// of its own and on another session, while claims go on. It ends by itself, or with Stop, and Finish joins it.
//
// After a failure the next claim shows whether the database answers. Once it does, after an outage, a rescan is due at once: leases
// have expired meanwhile.

// rescans are those of a consumer, and what they have found.
type rescans struct {
	*intake
	head     head            // of the claims
	suspects []table.Suspect // by the last one: at most one of each priority, the highest first

	found   chan rescan    // by a concurrent one, of capacity 1
	running sync.WaitGroup // those that claims do not wait for

	patience   time.Duration // of the next one
	concurrent bool          // claims do not wait for the next one
	known      bool          // there was one
	failed     bool          // the last one, or a claim since
	away       bool          // a claim has waited for its failure
}

func newRescans(in *intake) *rescans {
	return &rescans{intake: in, head: newHead(in.cfg.PollEvery), found: make(chan rescan, 1), patience: in.cfg.SpareTime}
}

// rescan is what one has found.
type rescan struct {
	table.Rescan
	began, took time.Duration // of base.Now, and how long its statement was under way
	late        bool          // it failed because its time was over
	err         error
}

// mostPatience is how long a rescan may take at last: each that ran out of its time leaves
// the next one twice as much.
const mostPatience = time.Hour

// makeDue makes a rescan, if one is due, and takes the result of one that has ended. It
// returns the failure of one that claims wait for.
func (v *rescans) makeDue() *batch.Failure {
	select {
	case r := <-v.found:
		v.ended(r)
	default:
	}
	switch due := v.isDue(); {
	case v.failed && v.known || !due:
		return nil
	case v.concurrent:
		v.begin()
		return nil
	}
	return v.loop.Try(v.cfg.Stop, func(context.Context) error {
		r, _ := v.now()
		return r.err
	})
}

// isDue reports that a rescan is due. It notes where this process has released messages, and whether there may be messages anywhere.
func (v *rescans) isDue() bool {
	low, hurried := v.cfg.Waiter.Heard()
	v.head.lower(low)
	v.head.hurried = v.head.hurried || hurried
	return v.head.isDue(base.Now())
}

// now makes a rescan on the session of claims, and waits for it. below is that of end.
func (v *rescans) now() (r rescan, below bool) {
	v.head.begin(base.Now())
	r = v.look(v.patience, false)
	if r.Known {
		v.cfg.Subscription.Looked(r.Due)
	}
	return r, v.end(r)
}

// begin begins a rescan that claims do not wait for.
func (v *rescans) begin() {
	v.head.begin(base.Now())
	patience := v.patience
	v.running.Go(func() { v.found <- v.look(patience, true) })
}

// look makes a rescan that takes up to patience.
func (v *rescans) look(patience time.Duration, concurrently bool) (r rescan) {
	ctx, cancel := context.WithTimeout(v.cfg.Stop, patience)
	defer cancel()
	r.Rescan, r.took, r.err = v.table.Rescan(ctx, concurrently)
	r.late = r.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	r.began = base.Now() - r.took
	return r
}

// end takes what a rescan found. It reports that there is something to claim before
// where claims have got to.
func (v *rescans) end(r rescan) (below bool) {
	if r.err != nil && table.IsPermanent(v.cfg.Classify(r.err)) {
		v.cfg.Holder.Broken(r.err)
	}
	v.failed = r.err != nil
	if r.Known {
		slices.SortFunc(r.Suspects, func(a, b table.Suspect) int { return int(b.Priority) - int(a.Priority) })
		v.suspects = r.Suspects
	}
	switch {
	case r.err == nil:
		v.known, v.patience = true, v.cfg.SpareTime
		v.concurrent = r.took > rescanSlow
	case table.Unconnected(r.err):
		v.concurrent = false // the application may use all connections, but for those of claims
	case r.late:
		v.patience = min(2*v.patience, mostPatience)
		v.concurrent = v.known
	}
	return v.head.end(r)
}

// ended takes the result of a rescan that claims did not wait for. It reports that there is
// something to claim, or that it failed: a claim shows whether the database answers.
func (v *rescans) ended(r rescan) bool { return v.end(r) || r.err != nil }

// atOnce has the next rescan made at once, before the next claim.
func (v *rescans) atOnce() { v.concurrent, v.head.hurried, v.head.rest = false, true, 0 }

// claimFailed notes a claim that failed, and for how long it had tried.
func (v *rescans) claimFailed(took time.Duration) {
	v.failed, v.away = true, v.away || took > rescanSlow
}

// claimWorked notes that the database answers.
func (v *rescans) claimWorked() {
	if v.away {
		v.head.recovered()
	}
	v.failed, v.away = false, false
}
