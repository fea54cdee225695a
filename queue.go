package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Queue is one queue of messages whose bodies are of type T. It is safe for
// concurrent use and holds no connection and no goroutine of its own.
//
// SQLite has one writer. A goroutine that holds a transaction there calls SendTx
// and AckTx, and nothing else of chanq that goes to the database (Send, Flush,
// Wait, Stats …) until it has committed or rolled back: that would wait for the
// transaction, and the transaction for it, until the call's context ends.
type Queue[T any] struct{ core *queue }

// queue is what the parts of a Queue share; it knows nothing of T.
type queue struct {
	db        *sql.DB
	name      string
	label     string // Config.Label, or the name
	cfg       Config
	dialect   sqlbatch.Dialect
	names     sqlbatch.Names
	sql       sqlbatch.Queue // of these names
	table     *table.Queue
	key       notify.Key
	debouncer notify.Debouncer

	recorder    recorder
	sampleEvery time.Duration // StepFine, but for tests
}

// newQueue checks what op was given. Its errors are complete.
// render renders the statements, which costs milliseconds, if what is known of the queue has
// changed their names.
func (q *queue) render() {
	if names := q.cfg.names(q.name); names != q.names {
		q.names, q.sql = names, q.dialect.Queue(names)
		q.table.SQL = q.sql
	}
}

func newQueue(op string, db *sql.DB, name string, cfg Config) (*queue, error) {
	if err := sqlbatch.CheckNames(sqlbatch.Names{Queue: name}); err != nil {
		return nil, fmt.Errorf("chanq: %s: %w", op, err) // which has the name
	}
	label := name
	if cfg.Label != "" {
		label = cfg.Label
	}
	refuse := func(err error) (*queue, error) { return nil, fmt.Errorf("chanq: %s %s: %w", op, label, err) }
	if db == nil {
		return refuse(errors.New("db is nil"))
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return refuse(err)
	}
	d := cfg.Dialect
	if isNil(d) {
		if d, err = findDialect(db); err != nil {
			return refuse(err)
		}
	}
	names := cfg.names(name)
	if err := sqlbatch.CheckNames(names); err != nil {
		return refuse(err)
	}
	q := &queue{
		db: db, name: name, label: label, cfg: cfg, dialect: d,
		names: names, sql: d.Queue(names), key: notify.Key{DB: db, Schema: schemaOf(d, cfg.Schema), Queue: name}, sampleEvery: StepFine,
	}
	q.table = &table.Queue{Dialect: d, SQL: q.sql, Archive: cfg.Retain > 0, Ordered: cfg.Kind == KindOrdered, Classify: q.classify}
	if q.ordered() && q.sql.Slots().Text == "" {
		return refuse(errNotOrdered(d))
	}
	q.debouncer.Notifier, q.debouncer.Queue, q.debouncer.Ordered = notifierOf(db, cfg.Notifier, q.ordered()), q.key.Schema+"."+name, q.ordered()
	return q, nil
}

func (q *queue) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	class := q.classify(err)
	if class == sqlbatch.NoSchema {
		err = fmt.Errorf("%w; run chanq.Migrate, or the command: chanq migrate %s (%w)", ErrNoSchema, q.name, err)
	}
	return &OpError{Op: op, Queue: q.label, Unknown: class == sqlbatch.Unknown || session.Fell(err), Err: err}
}

// failed is the error of a call that is not of one statement, or nil.
func (q *queue) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("chanq: %s %s: %w", op, q.label, err)
}

// classify is what an error means: session.Classify, and that of errors of chanq's own.
func (q *queue) classify(err error) sqlbatch.Class {
	if denied := (*consume.DeniedError)(nil); errors.As(err, &denied) {
		return sqlbatch.Permanent
	}
	if unfit := (*unfitError)(nil); errors.As(err, &unfit) {
		return sqlbatch.Permanent
	}
	if undecided := (*send.UndecidedError)(nil); errors.As(err, &undecided) {
		return sqlbatch.BadRow // the others of its batch may be stored
	}
	return session.Classify(q.dialect, err)
}

// unanswered wraps an error that says nothing about the tables, because the database did not answer, in
// ErrUnavailable.
func (q *queue) unanswered(err error) error {
	switch q.classify(err) {
	case sqlbatch.Unknown, sqlbatch.Refused, sqlbatch.RolledBack:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// on returns the statements of the queue, on sessions.
func (q *queue) on(s *session.Part) table.Table { return table.Table{Queue: q.table, Part: s} }

// ordered says that it is an ordered queue.
func (q *queue) ordered() bool { return q.cfg.Kind == KindOrdered }

// once runs one statement on a session of its own: for calls outside of a
// producer or consumer.
func (q *queue) once(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	s := session.OpenOnce(q.db, q.dialect)
	defer s.Close()
	return s.Run(ctx, st, scan)
}

// notify wakes idle consumers: there are messages that are due just now, of an ordered queue in these slots. more says that
// others follow.
func (q *queue) notify(messages int, slots notify.Slots, more bool) {
	q.key.Signal()
	q.debouncer.Notify(messages, slots, more)
}

// Name returns the queue's name.
func (q *Queue[T]) Name() string { return q.core.name }

// Label returns what errors, hooks and metrics call the queue: Config.Label, or its name.
func (q *Queue[T]) Label() string { return q.core.label }

// Wake makes idle consumers of this queue look for messages at once: call it after
// committing a transaction that used SendTx. It costs no round trip. Consumers in other
// processes need a Notifier for it; without one they find the messages within a second
// or so, or ConsumerConfig.PollMax, if that is longer.
func (q *Queue[T]) Wake() {
	q.core.wake()
}

// wake has all idle consumers look at once.
func (q *queue) wake() {
	q.key.Wake()
	q.debouncer.Notify(0, notify.AnySlot, false)
}

// schemaOf is the schema that a Config means: the default one has two names, "" and
// its own.
func schemaOf(d sqlbatch.Dialect, schema string) string {
	if schema == "" {
		return d.Traits().Schema
	}
	return schema
}
