package chanqweb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// reader reads one thing of the database for all visitors: the names of the queues; how a queue is configured, its counts, its consumers,
// or its history.
//
//	      a visitor asks, and the pause is over           begin returns
//	idle ───────────────────────────────────────▶ waiting ─────────────▶ reading
//	 ▲                                                                      │
//	 └──────────────────────────────────────────────────────────────────────┘
//	      the statements end, or the time within is over
//
// It waits for a place among the readers that use the database. That is no error, takes none of the time of the read, and does not make
// figures older.
//
// Without visitors it stays idle: it has a goroutine only while it reads. What it has read stays, and is stale when it is older than
// freshFor, which pages show. A driver that ignores the end of its context keeps the reader reading, and no visitor waits for it longer
// than patience.
//
// The store owns it, and the end of the store's life ends the read.
type reader[T any] struct {
	life  context.Context
	every time.Duration // the least time from one read to the next
	read  func(context.Context) (T, error)
	// begin waits until read may use the database. end allows it to another reader. nil: it need not wait.
	begin  func(context.Context) (end func(), err error)
	within time.Duration // bounds a read

	mu      sync.Mutex
	reading chan struct{} // closed at the end of the wait and the read; nil: idle
	began   time.Time     // of the running read; zero: it waits
	due     time.Time     // when the next read may begin; zero: now, even if one that is running has read
	last    reading[T]
}

// reading is what a reader knows.
type reading[T any] struct {
	Value T
	At    time.Time // when the read of Value began; zero: there is none
	Err   error     // of the last read; nil: it returned Value
}

const (
	// readTime bounds most reads, so that a lock on one queue does not keep a connection from the others.
	readTime = 2 * time.Second
	// patience is how long a visit waits for newer figures, if there are some, of all that it shows.
	patience = 400 * time.Millisecond

	// The pauses of readers. A read that took long is followed by a pause of restShare times as long, up to restShare*readTime, so that slow reads
	// of one queue take at most a third of one connection's time, for any number of visitors. What could not be read is read again after
	// figuresEvery: it is not kept longer than the trouble lasts.
	figuresEvery = 2 * time.Second
	restShare    = 4
)

func newReader[T any](life context.Context, every time.Duration, read func(context.Context) (T, error)) *reader[T] {
	return &reader[T]{life: life, every: every, read: read, within: readTime}
}

// ask begins a read if it is due. It returns a channel that is closed at the end of the read, or nil if the reader is idle.
func (r *reader[T]) ask() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.reading == nil && !now.Before(r.due) && r.life.Err() == nil {
		r.reading, r.due, r.began = make(chan struct{}), now, time.Time{}
		go r.run() // ends with its statements, after the time within at the latest, if the driver notices the end of a context
	}
	return r.reading
}

func (r *reader[T]) run() {
	value, err := r.inTurn()
	r.mu.Lock()
	defer r.mu.Unlock()
	every, took := figuresEvery, time.Since(r.began)
	if r.last.Err = err; err == nil {
		r.last, every = reading[T]{Value: value, At: r.began}, r.every
	}
	if !r.due.IsZero() {
		r.due = time.Now().Add(max(every-took, restShare*min(took, readTime)))
	}
	close(r.reading)
	r.reading = nil
}

// inTurn reads when begin allows it.
func (r *reader[T]) inTurn() (value T, err error) {
	if r.begin != nil {
		end, err := r.begin(r.life)
		if err != nil { // the end of its life
			return value, err
		}
		defer end()
	}
	r.mu.Lock()
	r.began = time.Now()
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.life, r.within)
	defer cancel()
	value, err = r.safely(ctx)
	if err != nil && ctx.Err() != nil { // drivers do not always return it
		err = errors.Join(context.Cause(ctx), err)
	}
	return value, err
}

// safely calls read, which may call functions of the user. net/http would recover their panics in a request.
func (r *reader[T]) safely(ctx context.Context) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.read(ctx)
}

// get returns what the reader knows, after a read that is due or running, or the end of ctx.
func (r *reader[T]) get(ctx context.Context) reading[T] {
	for done := r.ask(); done != nil; done = r.ask() { // a read that began before expire is followed by another
		select {
		case <-done:
		case <-ctx.Done():
			return r.known()
		}
	}
	return r.known()
}

// soon is get for a visit, with its patience, unless the reader knows nothing yet.
func (r *reader[T]) soon(v *visit) reading[T] {
	if r.known().At.IsZero() {
		return r.get(v.ctx)
	}
	return r.get(v.soon)
}

func (r *reader[T]) known() reading[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// tried returns for how long the running read has been reading.
func (r *reader[T]) tried(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading == nil || r.began.IsZero() {
		return 0
	}
	return now.Sub(r.began)
}

// expire makes the next read due: what the reader knows has changed.
func (r *reader[T]) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = time.Time{}
}

// none is the error of a reading without a value.
func (g reading[T]) none(ctx context.Context) error {
	switch {
	case !g.At.IsZero():
		return nil
	case g.Err != nil:
		return g.Err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errNoAnswer // the web UI was closed
}
