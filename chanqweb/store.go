package chanqweb

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// store caches the database for pages. It opens each queue once a minute, and limits how often the counts of a queue are read.
type store struct {
	db     *sql.DB
	config chanq.Config
	turns  chan struct{} // of capacity pagesAtOnce: contains a value for each request that uses the database

	mu    sync.Mutex
	known map[string]*known
	hours map[string]hour
}

// known is the state that is kept for a queue.
type known struct {
	placed placed // guarded by mu of the store

	turn   chan struct{} // of capacity 1: guards the fields below
	opened time.Time
	queue  *chanqadmin.Queue
	kind   chanq.Kind

	looked time.Time
	took   time.Duration
	stats  chanqadmin.Stats
}

// hour is the history of a queue's last hour.
type hour struct {
	at   time.Time
	list []chanqadmin.Sample
}

const (
	reopenAfter = time.Minute // the queue may have been dropped, and migrated again with another kind
	// Counts are read again after leastAge, or after share times the duration of the read. That is at most 5 % of one connection's time,
	// for any number of visitors.
	leastAge = time.Second
	share    = 20
)

func newStore(db *sql.DB, cfg Config) *store {
	return &store{
		db: db, turns: make(chan struct{}, pagesAtOnce), known: map[string]*known{}, hours: map[string]hour{},
		config: chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema},
	}
}

// take waits for a place in turns. give releases it.
func take(ctx context.Context, turns chan struct{}) (give func(), err error) {
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// with opens the queue if necessary, and calls f with its state, one call at a time.
func (s *store) with(ctx context.Context, name string, f func(*known) error) error {
	k := s.knownAs(name)
	give, err := take(ctx, k.turn)
	if err != nil {
		return err
	}
	defer give()
	if k.queue == nil || time.Since(k.opened) > reopenAfter {
		if err := s.open(ctx, name, k); err != nil {
			s.forget(name)
			return err
		}
	}
	if err := f(k); err != nil {
		k.queue = nil // it may have been replaced: open it again
		return err
	}
	return nil
}

func (s *store) knownAs(name string) *known {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.known[name]
	if k == nil {
		k = &known{turn: make(chan struct{}, 1)}
		s.known[name] = k
	}
	return k
}

// forget deletes the state of a queue that cannot be opened: visitors choose the names.
func (s *store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, name)
	delete(s.hours, name)
}

// queue returns an open queue and its kind.
func (s *store) queue(ctx context.Context, name string) (q *chanqadmin.Queue, kind chanq.Kind, err error) {
	err = s.with(ctx, name, func(k *known) error { q, kind = k.queue, k.kind; return nil })
	return q, kind, err
}

// figures are the Stats of a queue and the time when they were read.
type figures struct {
	chanqadmin.Stats
	At time.Time
}

// stats returns the figures of a queue, which it reads again if they are too old.
func (s *store) stats(ctx context.Context, name string) (found figures, kind chanq.Kind, err error) {
	err = s.with(ctx, name, func(k *known) error {
		if time.Since(k.looked) > max(leastAge, share*k.took) {
			if err := s.look(ctx, k); err != nil {
				return err
			}
		}
		found, kind = figures{k.stats, k.looked}, k.kind
		return nil
	})
	return found, kind, err
}

// look reads the figures.
func (s *store) look(ctx context.Context, k *known) error {
	began := time.Now()
	stats, err := k.queue.Stats(ctx)
	if err != nil {
		return err
	}
	k.stats, k.looked, k.took = stats, time.Now(), time.Since(began)
	return nil
}

// changed makes the next call of stats read the figures again.
func (s *store) changed(ctx context.Context, name string) error {
	return s.with(ctx, name, func(k *known) error { k.looked = time.Time{}; return nil })
}

// sampled returns the kept last hour of a queue, if it is not older than the finest step.
func (s *store) sampled(name string, now time.Time) ([]chanqadmin.Sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, known := s.hours[name]
	return h.list, known && now.Sub(h.at) < chanqadmin.StepFine
}

// keepSamples keeps the last hour of a queue for sampled. It ignores a queue that is not known.
func (s *store) keepSamples(name string, now time.Time, list []chanqadmin.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[name] != nil {
		s.hours[name] = hour{now, list}
	}
}
