// Package chanqadmin is for operators of queues and their programs: it counts, lists, purges and redrives messages, lists consumers,
// pauses queues and drops them.
//
// A Queue of this package has no type parameter: it opens a queue of any kind, and does not decode bodies. Programs that send and
// receive need only package chanq.
//
// The package has no goroutine and no lock. Each call borrows a session of the *sql.DB that producers and consumers also use.
// Consumers of other processes are notified of a redrive or the end of a pause through the Notifier of the Config, as for a send.
//
// Each statement of a Queue, with its repetitions, ends after Config.StatementTimeout, here 1 h by default; a change of many messages
// consists of many statements. Spec, Configure, Queues and Drop end only with their context, which bounds the other calls as well.
package chanqadmin

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Queue is one queue, for its operators. It is safe for concurrent use, holds no connection and no goroutine, and does not need to be
// closed.
type Queue struct {
	queue   *chanq.Queue[[]byte]
	db      *sql.DB
	cfg     chanq.Config // with the stored Spec and Shard
	dialect sqlbatch.Dialect
	sql     sqlbatch.Queue
}

// Open opens a queue whose tables Migrate created. It uses Dialect, Schema, Label, Notifier and StatementTimeout of cfg; the kind of the
// queue, its slots and its shard are the stored ones. Redrive and Resume wake idle consumers of this process that use the same *sql.DB, and
// those of other processes through the Notifier, which must be that of the consumers. Other consumers find the messages at their next poll.
//
// Like chanq.Open it refuses a *sql.DB with a limit of one connection, and a database that would break the guarantees of chanq,
// except that it accepts a database that may lose commits. It costs three round trips. ErrNoSchema and ErrNewerSchema state the
// remedy; ErrUnavailable means that the database does not answer, or refuses the connection.
func Open(ctx context.Context, db *sql.DB, queue string, cfg chanq.Config) (*Queue, error) {
	cfg = chanq.Config{
		Dialect: cfg.Dialect, Schema: cfg.Schema, Label: cfg.Label, Notifier: cfg.Notifier, Durability: chanq.DurabilityAsIs,
		StatementTimeout: cmp.Or(cfg.StatementTimeout, defaultStatementTimeout),
	}
	cfg, err := chanq.StoredConfig(ctx, db, queue, cfg)
	if err != nil {
		return nil, err
	}
	cfg.Spec = chanq.Spec{} // it may have changed
	opened, err := chanq.Open[[]byte](ctx, db, queue, cfg)
	if err != nil {
		return nil, err
	}
	cfg.Spec = opened.Spec()
	d, err := table.DialectNamed("Config.Dialect", string(cfg.Dialect)) // set by StoredConfig
	if err != nil {
		return nil, err
	}
	return &Queue{queue: opened, db: db, cfg: cfg, dialect: d, sql: d.Queue(namesOf(queue, cfg))}, nil
}

// defaultStatementTimeout is longer than that of producers and consumers: one statement may move 1,000 messages of 1 MiB.
const defaultStatementTimeout = time.Hour

// namesOf returns the names of the tables of a queue.
func namesOf(queue string, cfg chanq.Config) sqlbatch.Names {
	return sqlbatch.Names{
		Schema: cfg.Schema, Queue: queue, Slots: cfg.Slots,
		Shard: cfg.Shard.Index, Shards: cfg.Shard.Count, ShardSet: cfg.Shard.Set,
	}
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.queue.Name() }

// Label returns the queue's name in errors: Config.Label, or its name.
func (q *Queue) Label() string { return q.queue.Label() }

// Opened returns the stored Spec and shard of the queue as of Open.
func (q *Queue) Opened() (chanq.Spec, chanq.ShardMark) { return q.cfg.Spec, q.cfg.Shard }

// Empty is chanq.Queue.Empty.
func (q *Queue) Empty(ctx context.Context) (bool, error) { return q.queue.Empty(ctx) }

// Find is chanq.Queue.Find: it returns the IDs of ready, scheduled and leased messages with these DedupKeys, for example for Cancel.
func (q *Queue) Find(ctx context.Context, keys ...string) ([]chanq.ID, error) {
	return q.queue.Find(ctx, keys...)
}

func (q *Queue) ordered() bool { return q.cfg.Kind == chanq.KindOrdered }

// repeatFor bounds the time in which a statement is begun again. A deadlock takes servers up to 5 s to find; an attempt that waits for
// another program's write in a SQLite file takes all of it.
const repeatFor = 10 * time.Second

// once runs one statement on a session. It repeats a statement that the database rolled back: the victim of a deadlock, and on SQL Server a
// redrive whose DedupKey another transaction took after the redrive searched for it (a Duplicate).
func (q *Queue) once(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	return q.repeat(ctx, st, func() {}, scan)
}

// repeat is once with a call of begin before each attempt, because a failed attempt may leave rows behind.
func (q *Queue) repeat(ctx context.Context, st sqlbatch.Statement, begin func(), scan func(*sql.Rows) error) error {
	return repeat(ctx, q.db, q.dialect, q.cfg.StatementTimeout, st, begin, scan)
}

func repeat(ctx context.Context, db *sql.DB, d sqlbatch.Dialect, timeout time.Duration, st sqlbatch.Statement, begin func(), scan func(*sql.Rows) error) error {
	s := session.OpenOnce(db, d)
	defer s.Close()
	pause := batch.Backoff{Low: batch.LowPause, High: 500 * time.Millisecond}
	return session.Within(ctx, timeout, func(ctx context.Context) error {
		for until := time.Now().Add(repeatFor); ; {
			begin()
			err := s.Run(ctx, st, scan)
			class := session.Classify(d, err)
			if err == nil || !time.Now().Before(until) || ctx.Err() != nil || class != sqlbatch.RolledBack && class != sqlbatch.Duplicate {
				return err
			}
			batch.Sleep(ctx, pause.Pause())
		}
	})
}

// collect runs a statement and returns the results of scan for its rows. Rows of a failed attempt are dropped.
func collect[T any](ctx context.Context, q *Queue, op string, st sqlbatch.Statement, scan func(*sql.Rows) (T, error)) (list []T, err error) {
	err = q.repeat(ctx, st, func() { list = nil }, func(rows *sql.Rows) error {
		v, err := scan(rows)
		list = append(list, v)
		return err
	})
	if err != nil {
		return nil, q.fail(op, err)
	}
	return list, nil
}

// fail returns the error of a statement of op, or nil.
func (q *Queue) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	class := session.Classify(q.dialect, err)
	if class == sqlbatch.NoSchema {
		err = fmt.Errorf("%w; run chanq.Migrate, or the command: chanq migrate %s (%w)", chanq.ErrNoSchema, q.Name(), err)
	}
	if session.Unconnected(err) {
		err = fmt.Errorf("%w: %w", chanq.ErrUnavailable, err)
	}
	return &chanq.OpError{Op: op, Queue: q.Label(), Unknown: class == sqlbatch.Unknown, Err: err}
}

// refuse returns the error of an argument of op.
func (q *Queue) refuse(op, format string, args ...any) error {
	return fmt.Errorf("chanq: %s %s: %w", op, q.Label(), fmt.Errorf(format, args...))
}

// Queues returns the names of the queues that Migrate created in Config.Schema, sorted, or none if there has never been a queue. It costs
// one round trip, and uses Dialect and Schema of cfg.
func Queues(ctx context.Context, db *sql.DB, cfg chanq.Config) ([]string, error) {
	d, err := table.DialectOf(db, string(cfg.Dialect))
	if err != nil {
		return nil, fmt.Errorf("chanq: list queues: %w", err)
	}
	names := sqlbatch.Names{Schema: cfg.Schema, Queue: "any"} // the statement uses no name
	if err := sqlbatch.CheckNames(names); err != nil {
		return nil, fmt.Errorf("chanq: list queues: %w", err)
	}
	s := session.OpenOnce(db, d)
	defer s.Close()
	var list []string
	err = s.Run(ctx, d.Queue(names).Queues(), func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		list = append(list, name)
		return err
	})
	switch {
	case err == nil:
		slices.Sort(list) // whatever the collation of the database
		return list, nil
	case session.Classify(d, err) == sqlbatch.NoSchema:
		return nil, nil
	}
	return nil, fmt.Errorf("chanq: list queues: %w", err)
}
