package claim

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The rescans of a consumer: see head.go. Rescans are made while there is room for messages, each in its own goroutine
// and on another session. It ends by itself or on Stop, and Finish joins it. Claims wait for the first one
// only, because they would walk over the same rows with their leases running. An idle consumer makes a rescan in place
// of its poll.
//
// A rescan also finds where expired leases begin. A rescue, which precedes the next claim, makes these messages ready.
// There is another rescan after it, because a rescue is bounded.
//
// After a failure the next claim shows whether the database answers. When it does after an outage, a rescan is due
// immediately, because leases have expired meanwhile.

// rescans makes the rescans of a consumer, and keeps their results.
type rescans struct {
	*intake
	head    head         // of the claims
	lost    []table.Lost // where expired leases begin, as the last one has found
	careful bool         // the last rescan or claim met a message that has lost a lease: see Pace.careful

	found   chan rescan // result of the one that runs, of capacity 1
	running base.Group
	failed  bool // a rescan or a claim failed after the last claim that succeeded: no rescan until one succeeds
}

func newRescans(in *intake) *rescans {
	return &rescans{intake: in, found: make(chan rescan, 1)}
}

// rescan is the result of a rescan.
type rescan struct {
	table.Rescan
	began, took time.Duration // of base.Now, and the duration of its statement
	err         error
}

// rescanWait is how long a poll waits for a rescan that is made in its place. A longer one is slow. A failed claim that
// took longer has waited for the database.
const rescanWait = 50 * time.Millisecond

// first makes the first rescan, and waits for it.
func (v *rescans) first(context.Context) error {
	v.begin()
	r := <-v.found
	v.ended(r)
	return r.err
}

// makeDue processes the result of a finished rescan, makes the rescue that follows, and starts a rescan if one is due.
// It returns the failure of the rescue.
func (v *rescans) makeDue() *batch.Failure {
	v.hear()
	select {
	case r := <-v.found:
		v.ended(r)
	default:
	}
	failure := v.rescue()
	if failure == nil && !v.failed && v.head.isDue(base.Now()) {
		v.begin()
	}
	return failure
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
		v.careful = v.careful || len(places) > 0
		if len(places) > 0 {
			v.head.hurry()
		}
	}
	return nil
}

// hear records where this process has released messages, and whether messages might be anywhere.
func (v *rescans) hear() {
	low, hurried := v.cfg.Waiter.Heard()
	v.head.lower(low)
	if hurried {
		v.head.hurry()
	}
}

// begin starts a rescan. If the last one has timed out, it gets twice the time.
func (v *rescans) begin() {
	v.head.begin(base.Now(), v.cfg.PollEvery)
	patience, slow := max(v.cfg.SpareTimeout(), 2*v.head.took), v.head.took > rescanWait
	v.running.Go(func() {
		ctx, cancel := context.WithTimeout(v.cfg.Stop, patience)
		defer cancel()
		var r rescan
		r.Rescan, r.took, r.err = v.table.Rescan(ctx, slow)
		r.began = base.Now() - r.took
		v.found <- r
	})
}

// inPlaceOfPoll starts a rescan if one is due, and waits for its result for a moment.
func (v *rescans) inPlaceOfPoll() (r rescan, below, is bool) {
	v.hear()
	if !v.head.isDue(base.Now()) {
		return r, false, false
	}
	v.begin()
	timer := time.NewTimer(rescanWait)
	defer timer.Stop()
	select {
	case r = <-v.found:
		return r, v.ended(r), true
	case <-timer.C:
		return r, false, false
	}
}

// ended processes the result of a rescan. It reports that there is something to claim before the head, or to rescue, or
// that it failed: a claim shows whether the database answers.
func (v *rescans) ended(r rescan) bool {
	if r.err != nil && table.IsPermanent(v.cfg.Queue.Classify(r.err)) {
		v.cfg.Holder.Broken("claim", r.err)
	}
	v.failed = v.failed || r.err != nil // a claim that has failed in the meantime still counts
	if r.Known {
		v.lost, v.careful = r.Lost, r.Lapsed
	}
	return v.head.end(r) || r.err != nil || len(v.lost) > 0
}

// claimFailed records a failed claim, and how long it took. When claims have waited for the database, a rescan is due
// as soon as one succeeds.
func (v *rescans) claimFailed(took time.Duration) {
	v.failed = true
	if took > rescanWait {
		v.head.restsUntil, v.head.at = 0, 0
	}
}
