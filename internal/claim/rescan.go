package claim

import (
	"context"
	"errors"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The rescans of a consumer: see head.go. Rescans are made while there is room for messages. The first one precedes the
// first claim, which would otherwise walk over the same rows with its leases running. An idle consumer makes a rescan
// in place of its poll.
//
// Claims wait for a rescan, on their own session, as long as rescans are fast. After a slow rescan the next one runs in
// its own goroutine and on another session, while claims go on. It ends by itself or on Stop, and Finish joins it.
//
// A rescan also finds where expired leases begin. A rescue, which precedes the next claim, makes these messages ready.
// There is another rescan after it, because a rescue is bounded.
//
// After a failure the next claim shows whether the database answers. When it does after an outage, a rescan is due
// immediately, because leases have expired meanwhile.

// rescans makes the rescans of a consumer, and keeps their results.
type rescans struct {
	*intake
	head   head         // of the claims
	lost   []table.Lost // where expired leases begin, as the last one has found
	lapsed bool         // the next claim might begin with a message that has lost a lease

	found   chan rescan // result of a concurrent one, of capacity 1
	running base.Group  // those that claims do not wait for

	patience   time.Duration // timeout of the next one
	concurrent bool          // claims do not wait for the next one
	known      bool          // a rescan has succeeded
	failed     bool          // the last rescan failed, or a claim since
	away       bool          // a claim waited before it failed
}

func newRescans(in *intake) *rescans {
	return &rescans{intake: in, head: newHead(in.cfg.PollEvery), found: make(chan rescan, 1),
		patience: in.cfg.SpareTime}
}

// rescan is the result of a rescan.
type rescan struct {
	table.Rescan
	began, took time.Duration // of base.Now, and the duration of its statement
	late        bool          // it exceeded its timeout
	err         error
}

// mostPatience is the maximum timeout of a rescan: each timeout doubles the time of the next one.
const mostPatience = time.Hour

// makeDue makes a rescan if one is due, processes the result of a finished one, and makes the rescue that follows. It
// returns the failure of a statement that claims wait for.
func (v *rescans) makeDue() *batch.Failure {
	select {
	case r := <-v.found:
		v.ended(r)
	default:
	}
	switch due := v.isDue(); {
	case v.failed && v.known || !due:
	case v.concurrent:
		v.begin()
	default:
		failure := v.loop.Try(v.cfg.Stop, func(context.Context) error {
			r, _ := v.now()
			return r.err
		})
		if failure != nil {
			return failure
		}
	}
	return v.rescue()
}

// rescue makes the messages ready whose leases had expired. After a failure the next rescan finds them again.
func (v *rescans) rescue() *batch.Failure {
	lost := v.lost
	v.lost = nil
	for _, l := range lost {
		var places []table.Lost
		failure := v.run(func() (err error) {
			places, err = v.table.Rescue(v.cfg.claimTime(),
				sqlbatch.RescueParams{Priority: l.Priority, From: l.From, MaxCrashes: v.cfg.MaxCrashes})
			return err
		})
		if failure != nil {
			return failure
		}
		low := notify.NoPlace
		for _, p := range places {
			if at := &low[p.Priority-sqlbatch.PriorityLow]; p.From.Compare(*at) < 0 {
				*at = p.From
			}
		}
		v.head.lower(low)
		v.lapsed = v.lapsed || len(places) > 0
		v.head.hurried = v.head.hurried || len(places) > 0
	}
	return nil
}

// isDue reports that a rescan is due. It records where this process has released messages, and whether messages might
// be anywhere.
func (v *rescans) isDue() bool {
	low, hurried := v.cfg.Waiter.Heard()
	v.head.lower(low)
	v.head.hurried = v.head.hurried || hurried
	return v.head.isDue(base.Now())
}

// now makes a rescan on the session of claims, and waits for it. below is the result of end.
func (v *rescans) now() (r rescan, below bool) {
	v.head.begin(base.Now())
	r = v.look(v.patience, false)
	if r.Known {
		v.cfg.Subscription.Looked(r.Due)
	}
	return r, v.end(r)
}

// begin starts a rescan that claims do not wait for.
func (v *rescans) begin() {
	v.head.begin(base.Now())
	patience := v.patience
	v.running.Go(func() { v.found <- v.look(patience, true) })
}

// look makes a rescan with a timeout of patience.
func (v *rescans) look(patience time.Duration, concurrently bool) (r rescan) {
	ctx, cancel := context.WithTimeout(v.cfg.Stop, patience)
	defer cancel()
	r.Rescan, r.took, r.err = v.table.Rescan(ctx, concurrently)
	r.late = r.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	r.began = base.Now() - r.took
	return r
}

// end processes the result of a rescan. It reports that there is something to claim before the head.
func (v *rescans) end(r rescan) (below bool) {
	if r.err != nil && table.IsPermanent(v.cfg.Classify(r.err)) {
		v.cfg.Holder.Broken(r.err)
	}
	v.failed = r.err != nil
	if r.Known {
		v.lost, v.lapsed = r.Lost, r.Lapsed
	}
	switch {
	case r.err == nil:
		v.known, v.patience = true, v.cfg.SpareTime
		v.concurrent = r.took > rescanSlow
	case table.Unconnected(r.err):
		v.concurrent = false // the application might use all connections except those of claims
	case r.late:
		v.patience = min(2*v.patience, mostPatience)
		v.concurrent = v.known
	}
	return v.head.end(r)
}

// ended processes the result of a rescan that claims did not wait for. It reports that there is something to claim or
// to rescue, or that it failed: a claim shows whether the database answers.
func (v *rescans) ended(r rescan) bool { return v.end(r) || r.err != nil || len(v.lost) > 0 }

// claimFailed records a failed claim, and how long it took.
func (v *rescans) claimFailed(took time.Duration) {
	v.failed, v.away = true, v.away || took > rescanSlow
}

// claimWorked records that the database answers.
func (v *rescans) claimWorked() {
	if v.away {
		v.head.recovered()
	}
	v.failed, v.away = false, false
}
