package chanqshards

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
)

// place is one shard of an open queue. A program can start while the database of a shard does not answer: the shard is opened when the
// database answers.
type place[T any] struct {
	db    *sql.DB
	name  string // of the queue
	cfg   chanq.Config
	queue atomic.Pointer[chanq.Queue[T]] // nil: not opened yet
}

// open returns the shard, and tries once to open it if it is not open yet.
func (p *place[T]) open(ctx context.Context) (*chanq.Queue[T], error) {
	if q := p.queue.Load(); q != nil {
		return q, nil
	}
	q, err := chanq.Open[T](ctx, p.db, p.name, p.cfg)
	if err != nil {
		return nil, err
	}
	p.queue.CompareAndSwap(nil, q) // all callers share one Queue, which has one history
	return p.queue.Load(), nil
}

// The pause between two attempts to open a shard doubles from minPause to maxPause. An attempt takes openPatience at most, unless the
// driver ignores the context. leaveAfter bounds the wait for such an attempt after the end of await's context.
const (
	minPause   = 100 * time.Millisecond
	maxPause   = 2 * time.Second
	leaveAfter = time.Second
)

// await opens the shard. It tries until the database answers or ctx ends. part is "producer" or "consumer", for the Availability hook.
// If the driver or the hook does not return after the end of ctx, await leaves its goroutine behind and returns ErrStopped.
func (p *place[T]) await(ctx context.Context, part string) (*chanq.Queue[T], error) {
	var q *chanq.Queue[T]
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		q, err = p.openAgain(ctx, part)
	}()
	select {
	case <-done:
		return q, err
	case <-ctx.Done():
	}
	select {
	case <-done:
		return q, err
	case <-time.After(leaveAfter):
		return nil, p.fail("open", chanq.ID{}, fmt.Errorf("a hook or the driver does not return: %w", chanq.ErrStopped))
	}
}

// openAgain calls open until the database answers or ctx ends.
func (p *place[T]) openAgain(ctx context.Context, part string) (*chanq.Queue[T], error) {
	var since time.Time // of the outage; zero: the hook was not called
	report := chanq.JoinHooks(p.cfg.Hooks).Availability
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		began := time.Now()
		attempt, end := context.WithTimeout(ctx, openPatience)
		q, err := p.open(attempt)
		end()
		if away := errors.Is(err, chanq.ErrUnavailable); !away || ctx.Err() != nil {
			if !since.IsZero() {
				report(chanq.AvailabilityEvent{Queue: p.cfg.Label, Part: part, Up: true, Ended: away, Down: time.Since(since)})
			}
			return q, err
		}
		if since.IsZero() {
			since = began
			report(chanq.AvailabilityEvent{Queue: p.cfg.Label, Part: part, Err: err})
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// fail returns an error of this shard.
func (p *place[T]) fail(op string, id chanq.ID, err error) error {
	return &chanq.OpError{Op: op, Queue: p.cfg.Label, ID: id, Err: err}
}
