package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch"
)

// engine is a database on which strategies are measured.
type engine struct {
	name    string
	dialect sqlbatch.Dialect
	// check validates the options before anything is written.
	check func(options) error
	// open creates an empty queue for this program only.
	open func(context.Context, engine, options) (*store, error)
	// connector connects to the database of a queue, and counts its statements.
	connector func(place, *measure.Counter) (driver.Connector, error)
	// wake sets up the waking of idle consumers of other processes; nil: none.
	wake func(*store, *waking)
	// about is a query for version and durability, which returns one row with one text.
	about string
}

var engines = []engine{sqliteEngine, postgresEngine, sqlserverEngine}

func engineNames() []string {
	names := make([]string, len(engines))
	for i, e := range engines {
		names[i] = e.name
	}
	return names
}

// openQueue creates an empty queue on the engine of the options.
func openQueue(ctx context.Context, o options) (*store, error) {
	e := findEngine(o.engine)
	return e.open(ctx, e, o)
}

func findEngine(name string) engine {
	return engines[slices.Index(engineNames(), name)]
}

// place locates a queue, so that another process can use it.
type place struct {
	Engine, DSN, File, Schema, Queue string

	Slots int // of an ordered queue; 0: a plain one
}

func (p place) names() sqlbatch.Names {
	return sqlbatch.Names{Schema: p.Schema, Queue: p.Queue, Slots: p.Slots}
}

// connect opens an existing queue.
func (e engine) connect(p place) (*store, error) {
	counter := &measure.Counter{}
	connector, err := e.connector(p, counter)
	if err != nil {
		return nil, err
	}
	s := &store{
		engine: e, place: p, dialect: e.dialect, counter: counter, spent: &spent{}, received: &tally{},
		sql: e.dialect.Queue(p.names()),
	}
	s.db = sql.OpenDB(connector)
	s.remove = s.db.Close
	return s, nil
}

// newQueueName returns a name that no other run uses.
func newQueueName() string { return fmt.Sprintf("bench_%08x", rand.Uint32()) }

// store is a queue on an engine, and the statement count of its driver.
type store struct {
	engine   engine
	place    place
	db       *sql.DB
	dialect  sqlbatch.Dialect
	sql      sqlbatch.Queue
	counter  *measure.Counter
	spent    *spent
	received *tally       // of the strategy that takes its messages
	remove   func() error // removes everything; closes db
}

// migrate creates the queue's tables, and removes everything after an error.
func (s *store) migrate(ctx context.Context) (*store, error) {
	if err := chanq.Migrate(ctx, s.db, s.place.Queue, s.config()); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

func (s *store) config() chanq.Config {
	config := chanq.Config{Dialect: chanq.Dialect(s.dialect.Name()), Schema: s.place.Schema}
	if s.place.Slots > 0 {
		config.Kind, config.Slots = chanq.KindOrdered, s.place.Slots
	}
	return config
}

// openTimed is open with hooks that add the time of statements to spent.
func (s *store) openTimed(ctx context.Context) (*chanq.Queue[[]byte], error) {
	config := s.config()
	config.Hooks = chanq.Hooks{
		Sent:    func(e chanq.SentEvent) { s.spent.add(&spent{enqueue: e.Took}) },
		Claimed: func(e chanq.ClaimedEvent) { s.spent.add(&spent{claim: e.Took}) },
		Settled: func(e chanq.SettledEvent) { s.spent.add(&spent{ack: e.Took}) },
	}
	return chanq.Open[[]byte](ctx, s.db, s.place.Queue, config)
}

func (s *store) open(ctx context.Context) (*chanq.Queue[[]byte], error) {
	return chanq.Open[[]byte](ctx, s.db, s.place.Queue, s.config())
}

// next creates a second queue in addition to s, for phases that move messages between two queues.
// It is removed together with s.
func (s *store) next(ctx context.Context) (*store, error) {
	next := *s
	next.place.Queue += "_next"
	next.sql = s.dialect.Queue(next.place.names())
	next.remove = nil
	return &next, chanq.Migrate(ctx, s.db, next.place.Queue, s.config())
}

// about returns the server's version and its durability settings, or "" if unknown.
func (s *store) about(ctx context.Context) string {
	var text string
	if s.db.QueryRowContext(ctx, s.engine.about).Scan(&text) != nil {
		return ""
	}
	return text
}
