package chanqweb

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// store is the database as pages use it: queues of whatever kind, opened once a minute, and
// figures that are not asked for more often than they are cheap.
type store struct {
	db     *sql.DB
	config chanq.Config
	turns  chan struct{} // of capacity pagesAtOnce: held by requests at the database

	mu    sync.Mutex
	known map[string]*known
	hours map[string]hour
}

// known is what is remembered of a queue.
type known struct {
	placed placed // guarded by mu of the store

	turn   chan struct{} // of capacity 1: guards what follows
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
	reopenAfter = time.Minute // it may have been dropped, and made anew as another kind
	// Figures are asked for again after a second, or twenty times as long as they took: a
	// twentieth of one connection's time goes to them, however many look.
	leastAge = time.Second
	share    = 20
)

func newStore(db *sql.DB, cfg Config) *store {
	return &store{
		db: db, turns: make(chan struct{}, pagesAtOnce), known: map[string]*known{}, hours: map[string]hour{},
		config: chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema},
	}
}

// take waits for a turn at the database.
func take(ctx context.Context, turns chan struct{}) (give func(), err error) {
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// with calls f with what is known of a queue that exists, one call at a time.
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
		k.queue = nil // it may be another one by now
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

// forget: names of queues that do not exist are not kept.
func (s *store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, name)
	delete(s.hours, name)
}

// queue is one that exists, and its kind.
func (s *store) queue(ctx context.Context, name string) (q *chanqadmin.Queue, kind chanq.Kind, err error) {
	err = s.with(ctx, name, func(k *known) error { q, kind = k.queue, k.kind; return nil })
	return q, kind, err
}

// figures are the Stats of a queue, and when they were asked for.
type figures struct {
	chanqadmin.Stats
	At time.Time
}

// stats are those of now, or of a moment ago.
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

// look asks for the figures.
func (s *store) look(ctx context.Context, k *known) error {
	began := time.Now()
	stats, err := k.queue.Stats(ctx)
	if err != nil {
		return err
	}
	k.stats, k.looked, k.took = stats, time.Now(), time.Since(began)
	return nil
}

// changed has the next figures asked for.
func (s *store) changed(ctx context.Context, name string) error {
	return s.with(ctx, name, func(k *known) error { k.looked = time.Time{}; return nil })
}

// sampled is the last hour of a queue, if that is no older than the finest step.
func (s *store) sampled(name string, now time.Time) ([]chanqadmin.Sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, known := s.hours[name]
	return h.list, known && now.Sub(h.at) < chanqadmin.StepFine
}

// keepSamples keeps what sampled returns, of queues that are known.
func (s *store) keepSamples(name string, now time.Time, list []chanqadmin.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[name] != nil {
		s.hours[name] = hour{now, list}
	}
}
