// Package chanq turns a table in a SQL database into Go channels.
//
// A Producer groups sends into multi-row INSERTs. A Consumer claims batches
// ahead of the reader and delivers them on a buffered channel of leases; Ack
// and Nack are grouped into periodic statements. SQL Server is the database it
// is made for; the same code runs on PostgreSQL, and on SQLite with nothing to
// install.
//
// Delivery is at least once. Each claim of a message has a fence, an integer
// that rises with every claim, and every later write names it: a consumer that
// outlived its lease cannot settle a message that another one holds.
//
// Begin with Migrate, once, and Open. Queue.Producer sends: by a channel
// (Producer.C) or waiting for the database (Producer.Send). Queue.Consume reads:
// Consumer.C, Consumer.All and Consumer.Receive yield leases to settle, and
// Consumer.Handle and HandleBatches call a function in a pool of workers. Pipe makes a stage of a
// pipeline, and ConsumerConfig.StopWhenIdle serves programs that drain a queue and end.
//
// Queue.SendTx, Delivery.AckTx and AckTx join the caller's transaction: a message
// and the rows that it belongs to are stored together or not at all.
//
// One message travels so (ARCHITECTURE.md has it function by function):
//
//	Producer.Send (producer.go) → a group (internal/batch) → INSERT (internal/send, sqlbatch)
//	→ claim (internal/claim, sqlbatch) → a feed (internal/consume) → Consumer.C → your code
//	→ Lease.Ack (lease.go) → a group → DELETE (internal/settle, sqlbatch)
//
// while the extender (internal/settle) extends the leases of what is held.
//
// # The end of a consumer
//
// Handle, HandleBatches and Pipe end their consumer, and return as soon as everything has ended; Shutdown does the same for who reads
// the channel.
//
//	from                              handlers                           leases that are not settled
//	the stop (Stop, the end of the    go on; none begins;                those that no reader has taken are released
//	context, a permanent error)       Delivery.Stopping is closed
//	DrainFor later, or the end of     contexts end with ErrStopped       an error that is returned now releases its message
//	Shutdown's context
//	1 s later                         are left alone, and counted        those that are still held are released: settles of
//	                                  in the error                       their holders are ErrLeaseLost
//	5 s later                                                            expire in the database; what could not be stored
//	                                                                     is counted in the error
//
// No release counts as an attempt. What lies in a transaction is the transaction's.
//
// A queue is in one database. Package chanqshards makes one queue of several.
//
// The repository's docs/README.md is a book on it: a first program, concepts, how-to,
// guarantees, operations.
package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Schema lists the statements that Migrate would run for a queue whose tables
// do not exist, in order, for a database administrator to read and run. Each
// may be run again without harm. For SQL Server the schema's name must not have $(
// in it, which sqlcmd would replace. d is sqlserver.Dialect, postgres.Dialect or
// sqlite.Dialect.
func Schema(d sqlbatch.Dialect, queue string, cfg Config) ([]string, error) {
	names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, m := range d.Migrations(names) {
		texts = append(texts, m.Statements...)
	}
	return texts, nil
}

// View lists the statements that make the view chanq_<queue>_messages of a queue that is there,
// which shows what is in it to people and to programs that are not in Go: docs/sql.md says what its
// columns are. They are as those of Schema. Migrate makes no view; chanqadmin.Drop removes it.
func View(d sqlbatch.Dialect, queue string, cfg Config) ([]string, error) {
	names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	return d.View(names), nil
}

// Procedures lists the statements that make the procedure chanq_<queue>_send (on PostgreSQL a
// function), by which programs that are not in Go may send: docs/sql.md says what its parameters
// are. They are as those of Schema. Migrate makes none; chanqadmin.Drop removes it. SQLite has no procedures:
// errors.ErrUnsupported.
func Procedures(d sqlbatch.Dialect, queue string, cfg Config) ([]string, error) {
	names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	texts := d.Procedures(names)
	if len(texts) == 0 {
		return nil, fmt.Errorf("chanq: schema: %s has no procedures: %w", d.Name(), errors.ErrUnsupported)
	}
	return texts, nil
}

// printable names what statements are printed of.
func printable(d sqlbatch.Dialect, queue string, cfg Config) (sqlbatch.Names, error) {
	none := sqlbatch.Names{}
	if base.IsNil(d) {
		return none, errors.New("chanq: schema: dialect is nil; give sqlserver.Dialect, postgres.Dialect or sqlite.Dialect")
	}
	v := validator{}
	cfg.checkOrder(&v)
	cfg.Shard.check(&v)
	if cfg.Shard.Count > 0 && cfg.Shard.Set.IsZero() {
		v.wrong("Config.Shard.Set is zero: must be the same for all shards, from NewID, say")
	}
	if err := v.err(); err != nil {
		return none, fmt.Errorf("chanq: schema: %w", err)
	}
	names := cfg.names(queue)
	if err := sqlbatch.CheckNames(names); err != nil {
		return none, fmt.Errorf("chanq: schema: %w", err)
	}
	if cfg.Kind == KindOrdered && d.Queue(names).Slots().Text == "" {
		return none, fmt.Errorf("chanq: schema: %w", errNotOrdered(d))
	}
	if d.Name() == sqlserver.Dialect.Name() && strings.Contains(cfg.Schema, "$(") {
		return none, fmt.Errorf("chanq: schema: schema name %q: sqlcmd would put the value of a variable in the place of $(…); use Migrate", cfg.Schema)
	}
	return names, nil
}

// Open connects to a queue whose tables Migrate has made. It costs two round
// trips and starts nothing; a Queue need not be closed. It never changes the
// schema: ErrNoSchema, ErrNewerSchema and ErrKind say what to do. It refuses a database that
// would break chanq's promises, and says what would mend it: tables of before the
// first release, an encoding that cannot hold all messages, and commits that may be
// lost (ErrNotDurable; see Config.Durability). The caller keeps db, and closes it
// after the last Producer and Consumer have ended.
func Open[T any](ctx context.Context, db *sql.DB, queue string, cfg Config) (*Queue[T], error) {
	core, err := openCore(ctx, db, queue, cfg)
	if err != nil {
		return nil, err
	}
	return &Queue[T]{core}, nil
}

func openCore(ctx context.Context, db *sql.DB, name string, cfg Config) (*queue, error) {
	core, err := newQueue("open", db, name, cfg)
	if err != nil {
		return nil, err
	}
	if err := session.Enough(db); err != nil {
		return nil, fmt.Errorf("chanq: open %s: %w", core.label, err)
	}
	s := session.OpenOnce(db, core.dialect)
	defer s.Close()
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return s.Run(ctx, st, scan) }
	err = core.fits(run, cfg.Slots)
	if err == nil {
		err = core.trusted(run)
	}
	if err != nil {
		return nil, &OpError{Op: "open", Queue: core.label, Err: core.unanswered(err)}
	}
	return core, nil
}

// fits returns why the tables of a queue are not those that Config says, or nil. slots are
// those that the caller gave; 0 is any number. One round trip, by run.
func (q *queue) fits(run runner, slots int) error {
	found, err := q.stored(run)
	if err != nil {
		return err
	}
	if err := q.check(found, slots); err != nil {
		return &unfitError{err}
	}
	return q.adopt(found)
}

// unfitError is why a database cannot be used: no repetition changes that.
type unfitError struct{ error }

func (e *unfitError) Unwrap() error { return e.error }

// trusted is trust, with an unfitError for what the database has said.
func (q *queue) trusted(run runner) error {
	var failed error
	err := q.trust(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
		failed = run(st, scan)
		return failed
	})
	if err != nil && failed == nil {
		return &unfitError{err}
	}
	return err
}

// check says why what the database has is not what Config says, or nil.
func (q *queue) check(found stored, slots int) error {
	switch {
	case found.version < sqlbatch.Version:
		return fmt.Errorf("%w of version %d (found %d); run chanq.Migrate, or the command: chanq migrate %s",
			ErrNoSchema, sqlbatch.Version, found.version, q.name)
	case found.version > sqlbatch.Version:
		return newer(found.version)
	}
	if err := found.differs(&q.cfg, slots); err != nil {
		return err
	}
	if found.deadKey() != q.cfg.DeadKey {
		return fmt.Errorf("%w: Config.DeadKey is %v, and the database says %v; run chanq.Migrate to change that, and give all programs the same", ErrKind, q.cfg.DeadKey, found.deadKey())
	}
	return nil
}
