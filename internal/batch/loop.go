package batch

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Backoff is the pause before a repetition. It doubles from Low to High and is jittered, so that processes that failed
// together do not retry together. It is used by one goroutine at a time.
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

// Poll returns a pause between polls of an idle queue. It is jittered until it reaches High, which spreads the pollers,
// and then is High itself, because each poll costs the database something.
func (b *Backoff) Poll() time.Duration {
	if b.next >= b.High {
		return b.High
	}
	return b.Pause()
}

// Reset starts again at Low.
func (b *Backoff) Reset() { b.next = 0 }

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

const (
	// LowPause is the minimum pause before a repetition, for example after a deadlock. HighPause is the maximum, and
	// how long the database may repeatedly undo a statement before that counts as an outage: a lock that its holder
	// never releases looks like a temporary one.
	LowPause  = 5 * time.Millisecond
	HighPause = 5 * time.Second
	// ShortPause is the minimum pause after a refusal or a broken connection, and before a smaller statement.
	ShortPause = 100 * time.Millisecond
)

// Failure is a failed try.
type Failure struct {
	Err    error
	Class  sqlbatch.Class // Unknown: the try might have been applied
	Waited bool           // for a connection, until its timeout
	Began  time.Time
}

// Health gets reports of whether the database answers. began is the start of the operation.
type Health interface {
	Worked(began time.Time)
	Failed(began time.Time, err error)
}

// Loop has the pauses between the tries of one statement or transaction, and reports to Health. It is used by one
// goroutine at a time.
type Loop struct {
	Health   Health
	Classify func(error) sqlbatch.Class
	Waited   func(error) bool // reports a try that got no connection; nil: none
	Timeout  time.Duration    // of one try; 0: as long as its context
	Longest  time.Duration    // pause; 0: 5 s

	next  time.Duration // before the next try
	since time.Time     // when the first of the failures in a row began; zero: no failure
}

// ErrNotAsked is returned by the function of a try that needed no statement. The try has succeeded, but does not show
// whether the database answers.
var ErrNotAsked = errors.New("chanq: nothing to ask the database")

// Try runs do once. It returns nil and reports to Health if that succeeded.
func (l *Loop) Try(ctx context.Context, do func(context.Context) error) *Failure {
	began := time.Now()
	within, cancel := ctx, context.CancelFunc(func() {})
	if l.Timeout > 0 {
		within, cancel = context.WithTimeout(ctx, l.Timeout)
	}
	err := do(within)
	cancel()
	switch err {
	case nil:
		l.next, l.since = 0, time.Time{}
		l.Health.Worked(began)
		return nil
	case ErrNotAsked:
		return nil
	}
	return &Failure{Err: err, Class: l.Classify(err), Waited: l.Waited != nil && l.Waited(err), Began: began}
}

// Failed records a failure that is to be repeated, and returns the pause before. It reports to Health if the database
// is down and ctx has not ended. Most failures count as down immediately. If the database answers that it has undone
// the statement, it counts as down only after it has done so for some time. A bad row never counts.
func (l *Loop) Failed(ctx context.Context, f *Failure) (pause time.Duration) {
	if l.since.IsZero() {
		l.since = f.Began
	}
	away := true
	switch f.Class {
	case sqlbatch.RolledBack, sqlbatch.Duplicate:
		away = time.Since(l.since) >= HighPause
	case sqlbatch.BadRow:
		away = false
	}
	if away && ctx.Err() == nil {
		l.Health.Failed(f.Began, f.Err)
	}
	b := Backoff{Low: LowPause, High: HighPause, next: l.next}
	if f.Class != sqlbatch.RolledBack {
		b.next = max(b.next, ShortPause)
	}
	pause = b.Pause()
	l.next = b.next
	return l.atMost(pause)
}

// atMost bounds a pause.
func (l *Loop) atMost(pause time.Duration) time.Duration {
	return min(pause, cmp.Or(l.Longest, pause))
}
