package chanqshards

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
)

// place is one shard of an open queue. Programs can start while the database of a shard is away: then the
// shard is opened when it answers.
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
	p.queue.CompareAndSwap(nil, q) // all use one Queue, which has one history
	return p.queue.Load(), nil
}

// The pause between two attempts to open a shard doubles from minPause to maxPause. An attempt takes
// openPatience at most.
const (
	minPause = 100 * time.Millisecond
	maxPause = 2 * time.Second
)

// await opens the shard, again and again until its database answers or ctx ends. part is "producer" or
// "consumer", for the Availability hook.
func (p *place[T]) await(ctx context.Context, part string) (*chanq.Queue[T], error) {
	var since time.Time // of the outage; zero: the hook was not called
	tell := chanq.JoinHooks(p.cfg.Hooks).Availability
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		began := time.Now()
		attempt, end := context.WithTimeout(ctx, openPatience)
		q, err := p.open(attempt)
		end()
		if away := errors.Is(err, chanq.ErrUnavailable); !away || ctx.Err() != nil {
			if !since.IsZero() {
				tell(chanq.AvailabilityEvent{Queue: p.cfg.Label, Part: part, Up: true, Ended: away, Down: time.Since(since)})
			}
			return q, err
		}
		if since.IsZero() {
			since = began
			tell(chanq.AvailabilityEvent{Queue: p.cfg.Label, Part: part, Err: err})
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// fail is an error of this shard.
func (p *place[T]) fail(op string, id chanq.ID, err error) error {
	return &chanq.OpError{Op: op, Queue: p.cfg.Label, ID: id, Err: err}
}
