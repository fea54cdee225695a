// Package retry repeats statements whose outcome is not known: the pauses between the
// tries, when failures in a row mean that the database is away, and the loop of both.
// It knows no message and no hook.
package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Backoff is the pause before a repetition: it doubles from Low to High, the whole of
// it jittered so that processes that failed together do not return together. It is used
// by one goroutine at a time.
type Backoff struct {
	Low, High time.Duration
	next      time.Duration
}

// Pause returns the next pause: between a half and the whole of its length.
func (b *Backoff) Pause() time.Duration {
	b.next = max(b.next, b.Low)
	d := b.next
	b.next = min(2*b.next, b.High)
	return d/2 + rand.N(d/2+1)
}

// Poll returns a pause between looks at an idle queue: jittered on the way to High,
// which spreads the pollers, and then High itself, since each look costs the database
// something.
func (b *Backoff) Poll() time.Duration {
	if b.next >= b.High {
		return b.High
	}
	return b.Pause()
}

// Reset begins again at Low.
func (b *Backoff) Reset() { b.next = 0 }

const (
	lowPause     = 5 * time.Millisecond   // after a deadlock or the like
	refusedPause = 100 * time.Millisecond // after a refusal or a broken connection
	highPause    = 5 * time.Second

	// stuckFor is for how long a statement may be undone by the database, again and
	// again, before that is an outage like another: a lock that its holder never gives up
	// looks like one that passes.
	stuckFor = 5 * time.Second
)

// RefusedPause is the least pause after a refusal, or after a connection that broke.
const RefusedPause = refusedPause

// Failure is a try that failed.
type Failure struct {
	Err     error
	Class   sqlbatch.Class
	Unknown bool // the try may have been applied
	Waited  bool // for a connection, until its time was over
	Began   time.Time
}

// Tries are the failures in a row of one statement. The zero value has none. It is
// used by one goroutine at a time.
type Tries struct {
	next  time.Duration
	since time.Time // when the first try that failed began
}

// Reset forgets the failures: the statement succeeded.
func (t *Tries) Reset() { *t = Tries{} }

// Failed notes a failure. It returns the pause before the next try, 5 ms to 5 s, and
// whether the database is to be called away: at once, but where it answers that it has
// undone the statement only when it has done so for some time, and never for the sake of
// one row.
func (t *Tries) Failed(f Failure) (pause time.Duration, outage bool) {
	if t.since.IsZero() {
		t.since = f.Began
	}
	switch f.Class {
	case sqlbatch.RolledBack, sqlbatch.Duplicate:
		outage = time.Since(t.since) >= stuckFor
	case sqlbatch.BadRow:
	default:
		outage = true
	}
	b := Backoff{Low: lowPause, High: highPause, next: t.next}
	if f.Class != sqlbatch.RolledBack {
		b.next = max(b.next, refusedPause)
	}
	pause = b.Pause()
	t.next = b.next
	return pause, outage
}

// Health hears how the database does. began is when the operation did.
type Health interface {
	Worked(began time.Time)
	Failed(began time.Time, err error)
}

// Loop repeats one statement or transaction. It is used by one goroutine at a time.
type Loop struct {
	Health   Health
	Classify func(error) sqlbatch.Class
	Unknown  func(error) bool // reports a try that may have been applied, whatever its class; nil: none
	Waited   func(error) bool // reports a try that got no connection; nil: none
	Timeout  time.Duration    // of one try; 0: as long as its context
	Longest  time.Duration    // pause; 0: 5 s
	tries    Tries
}

// ErrNotAsked is returned by the function of a try that needed no statement. The try has succeeded, and does not show
// whether the database answers.
var ErrNotAsked = errors.New("chanq: nothing to ask the database")

// Try runs do once. It returns nil if that succeeded, and tells Health so.
func (l *Loop) Try(ctx context.Context, do func(context.Context) error) *Failure {
	began := time.Now()
	within, cancel := ctx, context.CancelFunc(nil)
	if l.Timeout > 0 {
		within, cancel = context.WithTimeout(ctx, l.Timeout)
	}
	err := do(within)
	if cancel != nil {
		cancel()
	}
	switch err {
	case nil:
		l.tries.Reset()
		l.Health.Worked(began)
		return nil
	case ErrNotAsked:
		return nil
	}
	class := l.Classify(err)
	return &Failure{
		Err: err, Class: class, Began: began,
		Unknown: class == sqlbatch.Unknown || l.Unknown != nil && l.Unknown(err),
		Waited:  l.Waited != nil && l.Waited(err),
	}
}

// Failed notes a failure that is to be repeated, and returns the pause before. Health
// hears of it if it means that the database is away, and not that ctx has ended.
func (l *Loop) Failed(ctx context.Context, f *Failure) (pause time.Duration) {
	pause, outage := l.tries.Failed(*f)
	if outage && ctx.Err() == nil {
		l.Health.Failed(f.Began, f.Err)
	}
	if l.Longest > 0 {
		pause = min(pause, l.Longest)
	}
	return pause
}

// Next is what follows a failure.
type Next uint8

// What follows a failure.
const (
	Again  Next = iota // another try, after a pause
	AtOnce             // another try, which will be another
	Stop               // none: the caller deals with it
)

// UntilKnown repeats do until it succeeds, which returns nil, or until the failure is
// the caller's to deal with, because next says Stop or ctx has ended. next is asked
// after each failure, that one included: it notes what the failure says, and leaves what
// has to be done about it to the caller.
func (l *Loop) UntilKnown(ctx context.Context, do func(context.Context) error, next func(*Failure) Next) *Failure {
	for {
		f := l.Try(ctx, do)
		if f == nil {
			return nil
		}
		then := next(f)
		switch {
		case ctx.Err() != nil, then == Stop:
			return f
		case then == Again:
			Sleep(ctx, l.Failed(ctx, f))
		}
	}
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
