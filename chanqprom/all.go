package chanqprom

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
)

// WatchAll is Watch for all queues of a schema, plain and ordered, including queues that are created later. It costs
// one more round trip per collection that reads the database, and four per queue once a minute. It uses Dialect and
// Schema of cfg.
func (m *Metrics) WatchAll(db *sql.DB, cfg chanq.Config) (stop func()) {
	cfg = chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema}
	return m.add(&all{db: db, cfg: cfg, maxAge: m.cfg.MaxAge})
}

// all are the queues of a schema.
type all struct {
	db     *sql.DB
	cfg    chanq.Config
	maxAge time.Duration

	mu    sync.Mutex // guards the fields below, and is held during the statement
	at    time.Time
	names []string
	known map[string]*look
}

// list returns the queues. If their names cannot be read, it returns those that were known, and why. So that they can still be read, it waits
// for the names for half of the time only.
func (a *all) list(ctx context.Context) (list []*look, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) >= a.maxAge {
		if end, limited := ctx.Deadline(); limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
			defer cancel()
		}
		var names []string
		if names, err = chanqadmin.Queues(ctx, a.db, a.cfg); err == nil {
			a.at, a.names = time.Now(), names
		}
	}
	known := map[string]*look{}
	for _, name := range a.names {
		l := a.known[name]
		if l == nil {
			l = &look{source: &stored{all: a, name: name, label: strings.ToValidUTF8(name, "\uFFFD")}}
		}
		known[name] = l
		list = append(list, l)
	}
	a.known = known
	return list, err
}

// reopenAfter is the number of periods of Config.MaxAge after which a queue is opened again, by default a minute: it
// might have been dropped, and created again as another kind or another shard.
const reopenAfter = 12

// stored is a queue in the database. It is opened when it is first read, and opened again after a while and after a
// failure. Its look calls one method at a time.
type stored struct {
	all    *all
	name   string
	opened time.Time
	queue  *chanqadmin.Queue // nil: to be opened
	label  string            // the name until the queue was opened
}

// Label returns the name, for a shard of several databases with its index, as in "orders/0".
func (s *stored) Label() string { return s.label }

func (s *stored) figures(ctx context.Context) chanqfindings.Figures {
	if s.queue == nil || time.Since(s.opened) > reopenAfter*s.all.maxAge {
		if err := s.open(ctx); err != nil {
			s.queue = nil
			return chanqfindings.Figures{Queue: s.name, At: time.Now(), Err: err}
		}
	}
	f := chanqfindings.Look(ctx, s.queue)
	if f.Err != nil {
		s.queue = nil
	}
	return f
}

func (s *stored) open(ctx context.Context) error {
	cfg, err := chanq.StoredConfig(ctx, s.all.db, s.name, s.all.cfg)
	if err != nil {
		return err
	}
	s.label = s.name
	if cfg.Shard.Count > 0 {
		s.label += fmt.Sprint("/", cfg.Shard.Index)
	}
	cfg.Label = s.label
	s.queue, err = chanqadmin.Open(ctx, s.all.db, s.name, cfg)
	s.opened = time.Now()
	return err
}
