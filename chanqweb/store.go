package chanqweb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
)

// store has the readers of the database. Those of a queue exist while names lists it, so that visitors, who choose the names in
// addresses, cannot fill it.
type store struct {
	db     *sql.DB
	config chanq.Config
	life   context.Context
	places chan struct{} // of capacity readsAtOnce: has a value for each reader that uses the database
	failed func(queue string, err error)
	source History // Config.History
	redact func(queue string, e *chanqadmin.Entry)
	limits chanqfindings.Limits

	names  *reader[[]string]
	shared *reader[sharedLocks]
	others *reader[struct{}]

	mu     sync.Mutex
	queues map[string]*watched
}

// watched is a queue, with its readers.
type watched struct {
	name     string
	opened   *reader[opened]
	stats    *reader[chanqadmin.Stats]
	details  *reader[details]
	hour     *reader[[]chanqadmin.Sample] // for the overview
	spans    map[string]*reader[[]chanqadmin.Sample]
	findings *reader[[]chanqfindings.Finding]
	seen     chanqfindings.Seen // of the last look; used by the reads of findings only
	// looks and changes, of capacity turnsAtOnce, have a value for each request that uses the database: a change does not wait for searches.
	looks, changes chan struct{}
}

// opened is a queue as it was opened.
type opened struct {
	queue *chanqadmin.Queue
	kind  chanq.Kind
	placed
}

// details are shown on the page of a queue only.
type details struct {
	Now       time.Time // by the clock of the database
	Consumers []chanqadmin.ConsumerInfo
}

// sharedLocks are locks on what all queues share: a SQLite file, or tables of a server.
type sharedLocks struct {
	list  []chanqadmin.Lock
	since time.Time // when this UI first saw the lock of the file
}

const (
	reopenAfter = time.Minute // the queue may have been dropped, and migrated again with another kind
	readsAtOnce = 8           // connections of the readers
	turnsAtOnce = 4           // requests for lists and messages of one queue that use the database simultaneously, and as many changes
)

func newStore(life context.Context, db *sql.DB, cfg Config, failed func(string, error)) *store {
	s := &store{
		db: db, life: life, places: make(chan struct{}, readsAtOnce), queues: map[string]*watched{}, failed: failed, source: cfg.History, redact: cfg.Redact, limits: cfg.Limits,
		config: chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema},
	}
	s.names = newReader(life, figuresEvery, s.readNames)
	s.names.begin = s.place
	s.shared = newReader(life, 2*figuresEvery, s.readShared)
	s.shared.begin = s.place
	s.others = newReader(life, figuresEvery, s.askOthers)
	return s
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

// place waits for a place among the readers.
func (s *store) place(ctx context.Context) (give func(), err error) { return take(ctx, s.places) }

// placeOf returns a function that waits until a queue has been opened, which takes a place of its own, and then for a place.
func (s *store) placeOf(w *watched) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		w.opened.get(ctx)
		return s.place(ctx)
	}
}

// readNames reads the names of all queues, and forgets queues that are gone.
func (s *store) readNames(ctx context.Context) ([]string, error) {
	names, err := chanqadmin.Queues(ctx, s.db, s.config)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.queues {
		if _, listed := slices.BinarySearch(names, name); !listed {
			delete(s.queues, name)
		}
	}
	return names, nil
}

// readShared looks for locks, for which any name of a queue is valid. If a program had the lock of a file at the last look, it has had it since
// then.
func (s *store) readShared(ctx context.Context) (sharedLocks, error) {
	now, last := time.Now(), s.shared.known()
	list, err := chanqadmin.Locks(ctx, s.db, "any", s.config)
	found := sharedLocks{list, now}
	if len(list) > 0 && list[0].File {
		if before := last.Value.list; last.Err == nil && len(before) > 0 && before[0].Session == list[0].Session && list[0].Session != 0 && now.Sub(last.At) < chanqfindings.OldAfter {
			found.since = last.Value.since
		}
		list[0].For += now.Sub(found.since)
	}
	return found, err
}

// locked returns the locks that all queues share, if they are known.
func (s *store) locked() []chanqadmin.Lock {
	last := s.shared.known()
	if last.Err != nil {
		return nil
	}
	return last.Value.list
}

// report reports an error of a queue, and returns it.
func (s *store) report(queue string, err error) error {
	if err != nil && s.life.Err() == nil {
		s.failed(queue, err)
	}
	return err
}

// lists reports whether the names, which are read again if that is due, have a queue.
func (s *store) lists(v *visit, name string) bool {
	_, listed := slices.BinarySearch(s.names.get(v.soon).Value, name)
	return listed
}

// watch returns a queue that exists.
func (s *store) watch(v *visit, name string) (*watched, error) {
	names := s.names.soon(v)
	_, listed := slices.BinarySearch(names.Value, name)
	if !listed && names.Err == nil { // it may be new
		s.names.expire()
		names = s.names.get(v.ctx)
		_, listed = slices.BinarySearch(names.Value, name)
	}
	if listed {
		return s.watched(name), nil
	}
	if names.Err != nil {
		return nil, names.Err
	}
	if err := names.none(v.ctx); err != nil {
		return nil, err
	}
	return nil, errNoQueue
}

// watched returns a queue that names has listed.
func (s *store) watched(name string) *watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.queues[name]
	if w == nil {
		w = s.newWatched(name)
		s.queues[name] = w
	}
	return w
}

func (s *store) newWatched(name string) *watched {
	w := &watched{name: name, looks: make(chan struct{}, turnsAtOnce), changes: make(chan struct{}, turnsAtOnce), spans: map[string]*reader[[]chanqadmin.Sample]{}}
	w.opened = newReader(s.life, reopenAfter, func(ctx context.Context) (opened, error) {
		at, err := s.open(ctx, name)
		return at, s.report(name, err)
	})
	w.opened.begin = s.place
	w.stats = newReader(s.life, figuresEvery, func(ctx context.Context) (chanqadmin.Stats, error) {
		stats, err := using(s, w, func(q *chanqadmin.Queue) (chanqadmin.Stats, error) { return q.Stats(ctx) })
		if errors.Is(err, chanq.ErrNoSchema) { // it may have been dropped, or replaced
			w.opened.expire()
			s.names.expire()
		}
		return stats, err
	})
	w.stats.begin = s.placeOf(w)
	w.findings = newReader(s.life, 2*figuresEvery, func(ctx context.Context) ([]chanqfindings.Finding, error) {
		f := s.look(ctx, w)
		f.Follow(w.seen)
		w.seen = f.Seen
		return s.found(f), nil
	})
	w.findings.begin, w.findings.within = s.placeToLook(w), 2*chanqfindings.Patience
	w.details = newReader(s.life, figuresEvery, func(ctx context.Context) (details, error) {
		return using(s, w, func(q *chanqadmin.Queue) (d details, err error) {
			if d.Now, err = q.Now(ctx); err != nil {
				return d, err
			}
			d.Consumers, err = q.Consumers(ctx)
			return d, err
		})
	})
	w.details.begin = s.placeOf(w)
	history := func(last, step time.Duration) *reader[[]chanqadmin.Sample] {
		r := newReader(s.life, chanqadmin.StepFine, func(ctx context.Context) ([]chanqadmin.Sample, error) {
			if stats, q := w.stats.known(), w.opened.known().Value.queue; q != nil && !stale(stats.At, time.Now()) && s.source == nil {
				_ = q.Record(ctx, stats.Value) // no other program may count; the role may lack the permission
			}
			return s.history(ctx, w, time.Now().Add(-last), step)
		})
		if s.source == nil {
			r.begin = s.placeOf(w)
		}
		return r
	}
	w.hour = history(time.Hour, chanqadmin.StepMinute)
	for _, one := range spans {
		w.spans[one.Name] = history(one.Last, one.step)
	}
	return w
}

// using calls f with the open queue.
func using[T any](s *store, w *watched, f func(*chanqadmin.Queue) (T, error)) (value T, err error) {
	at := w.opened.known()
	if at.Value.queue == nil || errors.Is(at.Err, chanq.ErrNoSchema) {
		return value, cmp.Or(at.Err, error(errNoAnswer))
	}
	value, err = f(at.Value.queue)
	return value, s.report(w.name, err)
}

// history reads samples, from Config.History if it is set.
func (s *store) history(ctx context.Context, w *watched, since time.Time, step time.Duration) ([]chanqadmin.Sample, error) {
	if s.source != nil {
		list, err := s.source.History(ctx, w.name, since, step)
		if err != nil {
			s.failed(w.name, err)
		}
		return list, err
	}
	return using(s, w, func(q *chanqadmin.Queue) ([]chanqadmin.Sample, error) { return q.History(ctx, since, step) })
}

func (s *store) open(ctx context.Context, name string) (opened, error) {
	q, err := chanqadmin.Open(ctx, s.db, name, s.config)
	if err != nil {
		return opened{}, err
	}
	spec, mark := q.Opened()
	at := placed{Holds: spec.DeadKey == chanq.DeadKeyHolds}
	if mark.Count > 0 {
		at.Shard = fmt.Sprintf("shard %d of %d", mark.Index, mark.Count)
	}
	return opened{q, spec.Kind, at}, nil
}

// placed is the stored configuration of a queue, except its kind.
type placed struct {
	Shard string // its shard if the queue is spread over several databases; "": the queue has no shards
	Holds bool   // dead messages hold their keys
}

// known returns what is known of a queue, without a database call.
func (s *store) known(name string) opened {
	s.mu.Lock()
	w := s.queues[name]
	s.mu.Unlock()
	if w == nil {
		return opened{}
	}
	return w.opened.known().Value
}

// changed makes the figures be read again: a visitor has changed the queue.
func (w *watched) changed() {
	w.stats.expire()
	w.details.expire()
	w.findings.expire()
}
