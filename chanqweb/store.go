package chanqweb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/chanq/chanq"
)

// store is the database as pages use it: queues of whatever kind, opened once a minute, and
// figures that are not asked for more often than they are cheap.
type store struct {
	db     *sql.DB
	config chanq.Config
	shards []chanq.Shard
	turns  chan struct{} // of capacity pagesAtOnce: held by requests at the database

	mu    sync.Mutex
	known map[string]*known
	hours map[string]hour
}

// known is what is remembered of a queue.
type known struct {
	turn   chan struct{} // of capacity 1: guards what follows
	opened time.Time
	queue  *chanq.Queue[[]byte]
	kind   chanq.Kind
	shard  string // which one it is, of a queue that was opened alone
	away   string // why the figures are not of all shards

	looked time.Time
	took   time.Duration
	stats  chanq.Stats
}

// hour is the history of a queue's last hour.
type hour struct {
	at   time.Time
	list []chanq.Sample
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
		db: db, shards: cfg.Shards, turns: make(chan struct{}, pagesAtOnce), known: map[string]*known{}, hours: map[string]hour{},
		config: chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema, MaxAttempts: chanq.UnlimitedAttempts, Durability: chanq.DurabilityAsIs},
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

func (s *store) names(ctx context.Context) ([]string, error) {
	names, err := chanq.Queues(ctx, s.db, s.config)
	if errors.Is(err, chanq.ErrNoSchema) {
		return nil, nil
	}
	return names, err
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

func (s *store) open(ctx context.Context, name string, k *known) error {
	config, err := chanq.StoredConfig(ctx, s.db, name, s.config)
	if err != nil {
		return err
	}
	mark, q, shard := config.Shard, (*chanq.Queue[[]byte])(nil), ""
	if mark.Count > 0 && mark.Count == len(s.shards) {
		config.Schema, config.Shard = "", chanq.ShardMark{}
		q, err = chanq.OpenShards[[]byte](ctx, s.shards, name, config)
	} else {
		if mark.Count > 0 {
			shard = fmt.Sprintf("shard %d of %d", mark.Index, mark.Count)
		}
		q, err = chanq.Open[[]byte](ctx, s.db, name, config)
	}
	if err != nil {
		return err
	}
	k.queue, k.kind, k.shard, k.opened, k.looked = q, config.Kind, shard, time.Now(), time.Time{}
	return nil
}

// placed is where a queue is: in shards of these names, or in one that is shown alone; and why
// figures are not of all of them.
type placed struct {
	Shards      []string
	Shard, Away string
}

// placed asks nothing: of a queue that is not known, or that somebody asks about just now, it
// is empty.
func (s *store) placed(name string) (p placed) {
	s.mu.Lock()
	k := s.known[name]
	s.mu.Unlock()
	if k == nil {
		return p
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	default:
		return p
	}
	if k.queue != nil && k.queue.Shards() > 1 {
		for i, shard := range s.shards {
			p.Shards = append(p.Shards, cmp.Or(printable(shard.Name), strconv.Itoa(i)))
		}
	}
	p.Shard, p.Away = k.shard, k.away
	return p
}

// apart is what the shards of a queue say that do not answer while others do; "" where err is
// another one, or none.
func apart(q *chanq.Queue[[]byte], err error) string {
	var op *chanq.OpError
	if q.Shards() > 1 && errors.As(err, &op) && op.Shard != "" {
		return "Not all shards answer: " + printable(err.Error())
	}
	return ""
}

// queue is one that exists, and its kind.
func (s *store) queue(ctx context.Context, name string) (q *chanq.Queue[[]byte], kind chanq.Kind, err error) {
	err = s.with(ctx, name, func(k *known) error { q, kind = k.queue, k.kind; return nil })
	return q, kind, err
}

// stats are those of now, or of a moment ago.
func (s *store) stats(ctx context.Context, name string) (stats chanq.Stats, kind chanq.Kind, err error) {
	err = s.with(ctx, name, func(k *known) error {
		if time.Since(k.looked) > max(leastAge, share*k.took) {
			began := time.Now()
			stats, err := k.queue.Stats(ctx)
			if k.away = apart(k.queue, err); err != nil && (k.away == "" || ctx.Err() != nil) {
				return err
			}
			k.stats, k.looked, k.took = stats, time.Now(), time.Since(began)
		}
		stats, kind = k.stats, k.kind
		return nil
	})
	return stats, kind, err
}

// changed has the next figures asked for.
func (s *store) changed(ctx context.Context, name string) error {
	return s.with(ctx, name, func(k *known) error { k.looked = time.Time{}; return nil })
}

// sampled is the last hour of a queue, if that is no older than the finest step.
func (s *store) sampled(name string, now time.Time) ([]chanq.Sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, known := s.hours[name]
	return h.list, known && now.Sub(h.at) < chanq.StepFine
}

// keepSamples keeps what sampled returns, of queues that are known.
func (s *store) keepSamples(name string, now time.Time, list []chanq.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[name] != nil {
		s.hours[name] = hour{now, list}
	}
}
