package claim

import (
	"context"
	"errors"
	"slices"
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
// of its own and on another session, while claims go on. It ends by itself, or with Stop, and Close joins it.
//
// After a failure the next claim shows whether the database answers. Once it does, after an outage, a rescan is due at once: leases
// have expired meanwhile.

// rescans is what is known of the rescans so far.
type rescans struct {
	patience   time.Duration // of the next one
	concurrent bool          // claims do not wait for the next one
	known      bool          // there was one
	failed     bool          // the last one, or a claim since
	away       bool          // a claim has waited for its failure
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

// rescanIfDue makes a rescan, if one is due, and takes the result of one that has ended. It
// returns the failure of one that claims wait for.
func (p *Plain) rescanIfDue() *batch.Failure {
	p.hear()
	select {
	case r := <-p.rescanned:
		p.rescanEnded(r)
	default:
	}
	if p.rescans.failed && p.rescans.known || !p.head.isDue(base.Now()) {
		return nil
	}
	if p.rescans.concurrent {
		p.rescanConcurrently()
		return nil
	}
	return p.loop.Try(p.cfg.Stop, func(context.Context) error {
		r, _ := p.rescanNow()
		return r.err
	})
}

// hear notes where this process has released messages, and whether there may be messages anywhere.
func (p *Plain) hear() {
	low, hurried := p.cfg.Consumer.Heard()
	p.head.lower(low)
	p.head.hurried = p.head.hurried || hurried
}

// rescanNow makes a rescan on the session of claims, and waits for it. below is endRescan's.
func (p *Plain) rescanNow() (r rescan, below bool) {
	p.head.begin(base.Now())
	r = look(p.cfg.Stop, p.rescans.patience, p.table.Rescan)
	if r.Known {
		p.cfg.Subscription.Looked(r.Due)
	}
	return r, p.endRescan(r)
}

// rescanConcurrently begins a rescan that claims do not wait for.
func (p *Plain) rescanConcurrently() {
	p.head.begin(base.Now())
	patience := p.rescans.patience
	p.concurrent.Go(func() { p.rescanned <- look(p.cfg.Stop, patience, p.table.RescanConcurrently) })
}

// look makes a rescan that takes up to patience.
func look(ctx context.Context, patience time.Duration, run func(context.Context) (table.Rescan, time.Duration, error)) (r rescan) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r.Rescan, r.took, r.err = run(ctx)
	r.late = r.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	r.began = base.Now() - r.took
	return r
}

// endRescan takes what a rescan found. It reports that there is something to claim before
// where claims have got to.
func (p *Plain) endRescan(r rescan) (below bool) {
	if r.err != nil && table.IsPermanent(p.cfg.Classify(r.err)) {
		p.cfg.Consumer.Broken(r.err)
	}
	v := &p.rescans
	v.failed = r.err != nil
	if r.Known {
		slices.SortFunc(r.Suspects, func(a, b table.Suspect) int { return int(b.Priority) - int(a.Priority) })
		p.careful.found = r.Suspects
	}
	switch {
	case r.err == nil:
		v.known, v.patience = true, p.cfg.StatementTimeout
		v.concurrent = r.took > rescanSlow
	case table.Unconnected(r.err):
		v.concurrent = false // the application may use all connections, but for those of claims
	case r.late:
		v.patience = min(2*v.patience, mostPatience)
		v.concurrent = v.known
	}
	return p.head.end(r)
}

// rescanEnded takes the result of a rescan that claims did not wait for. It reports that there is
// something to do: a claim, which shows whether the database answers, too.
func (p *Plain) rescanEnded(r rescan) bool {
	return p.endRescan(r) || r.err != nil || p.suspectsWait()
}

// rescanAtOnce has the next rescan made at once, before the next claim.
func (p *Plain) rescanAtOnce() { p.rescans.concurrent, p.head.hurried, p.head.rest = false, true, 0 }

// claimFailed notes a claim that failed, and for how long it had tried.
func (v *rescans) claimFailed(took time.Duration) {
	v.failed, v.away = true, v.away || took > rescanSlow
}

// claimWorked notes that the database answers.
func (p *Plain) claimWorked() {
	if p.rescans.away {
		p.head.recovered()
	}
	p.rescans.failed, p.rescans.away = false, false
}
