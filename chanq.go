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
// Begin with Migrate, once, and Open. Queue.Send sends a few messages, and Queue.Producer many: by a channel
// (Producer.C) or waiting for the database (Producer.Send). Queue.Consume reads:
// Consumer.C, Consumer.All and Consumer.Receive yield leases to settle, and
// Consumer.Handle and HandleBatches call a function in a pool of workers. Pipe makes a stage of a
// pipeline, and ConsumerConfig.StopWhenIdle serves programs that drain a queue and end.
//
// Queue.SendTx, Delivery.AckTx and AckTx join the caller's transaction: a message
// and the rows that it belongs to are stored together or not at all. InTx runs such a transaction.
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
// Handle, HandleBatches and Pipe end their consumer, and return as soon as everything has ended; Shutdown does the same for programs
// that read the channel.
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
// A batch that was received before the stop is still handed over. No release counts as an attempt. What lies in a transaction is the transaction's.
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

// Open connects to a queue whose tables Migrate has made. It costs two round
// trips and starts nothing; a Queue need not be closed. It never changes the
// schema: ErrNoSchema, ErrNewerSchema and ErrSpec say what to do. It refuses a database that
// would break chanq's promises, and names the remedy: tables of before the
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

// Name returns the queue's name.
func (q *Queue[T]) Name() string { return q.core.name }

// Spec returns what the database said of the queue when this process last read it: when the Queue was opened, or with the last heartbeat
// of a consumer of it.
func (q *Queue[T]) Spec() Spec { return specOf(q.core.slots, q.core.table.Policy()) }

// Label returns what errors, hooks and metrics call the queue: Config.Label, or its name.
func (q *Queue[T]) Label() string { return q.core.label }

// Send stores messages and waits for them, without a Producer: a nil error means that all are in the database. Otherwise none is,
// unless the error is Unknown. There is a Receipt for each message, in order. With no messages it does nothing.
//
// What the database refuses or rolls back, and what has an unknown outcome, is repeated until ctx ends, with the same IDs. So a ctx
// without a deadline waits for the end of an outage. The error then is an *OpError that wraps the cause of ctx, whose Unknown says
// whether the messages may be stored. The receipts have their IDs: sent again with these, no message is stored twice while it is in
// the queue. What the database rejects is returned immediately. All messages are checked before the first is stored.
//
// It takes a connection as calls of the application do, and returns it. One round trip stores up to 500 messages or 4 MiB of bodies;
// one more is needed where a DedupKey or a caller's ID is met. More messages, and several with a DedupKey or a caller's ID, are
// stored in one transaction, with two more round trips. Each try of a statement has Config.StatementTimeout. For many sends at once use a Producer,
// which stores messages of many calls with one statement. Send is safe for concurrent use. On SQLite a goroutine that holds a
// transaction must not call it: see Queue.
func (q *Queue[T]) Send(ctx context.Context, ms ...Message[T]) ([]Receipt, error) {
	core := q.core
	rows, receipts, keyed, err := rowsOf(core, ms)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	began := time.Now()
	part := session.OpenOnce(core.db, core.dialect)
	defer part.Close()
	stored, unknown, err := send.Direct{
		Inserts: core.inserts(core.on(part).Insert()),
		InTx: func(ctx context.Context, f func(send.Inserts) error) error {
			return part.InTx(ctx, func(tx *sql.Tx) error { return f(core.inserts(core.table.InTx(tx))) })
		},
		Rows: core.mostRows(), Bytes: defaultBatchBytes, Timeout: core.cfg.StatementTimeout,
	}.Send(ctx, rows, keyed)
	if err == nil || unknown {
		core.notify(len(rows), core.slotsOf(rows), false)
	}
	if err != nil {
		failed := &OpError{Op: "send", Queue: core.label, Unknown: unknown, Err: core.explainSend(err)}
		if len(rows) == 1 {
			failed.ID = rows[0].ID
		}
		return receipts, failed
	}
	duplicates, bytes := addDuplicates(receipts, stored), 0
	for i := range rows {
		bytes += len(rows[i].Body)
	}
	core.sent(SentEvent{Messages: len(rows) - duplicates, Duplicates: duplicates, Bytes: bytes, Took: time.Since(began)})
	core.noteSoon()
	return receipts, nil
}

// Wake makes idle consumers of this queue look for messages at once: call it after
// committing a transaction of your own that used SendTx. InTx does it. It costs no round trip. Consumers in other
// processes need a Notifier for it; without one they find the messages within a second
// or so, or ConsumerConfig.PollEvery, if that is longer.
func (q *Queue[T]) Wake() {
	q.core.wake()
}

// Empty reports whether the queue has no ready, scheduled or leased message, whether it is paused or not.
// Dead and done messages do not count. Use it, and not a sum of Stats, to decide that a queue is drained:
// on SQL Server Stats leaves out rows that are locked at that moment.
//
// The answer is that of one moment during the call. Empty never returns true while a committed message is
// in the queue: a message counts until the commit of its ack or of its move to the dead messages. It
// counts while another process holds it, while an AckTx is open, and while an Ack waits to be written (see
// Consumer.Flush). What a Producer has not stored, or a SendTx has not committed, need not count. On SQL
// Server Empty may also return false while a transaction that has written to the queue is open, so call it
// again before concluding that a message is left.
//
// Empty costs one round trip, and reads one entry of the primary key if the newest message is live.
// Otherwise it also reads the entries of ended messages that the database has not cleaned up: on PostgreSQL
// until a vacuum, on SQL Server until its ghost cleanup. It never waits for a locked row. On SQL Server, if a
// first look finds no row, a second one locks the table against writers while it reads.
func (q *Queue[T]) Empty(ctx context.Context) (empty bool, err error) {
	err = q.core.once(ctx, q.core.sql.Empty(), func(rows *sql.Rows) error { return rows.Scan(&empty) })
	return empty, q.core.fail("empty", err)
}

// Cancel deletes messages that are ready, scheduled or leased and returns the
// IDs of those it found. The holder of a leased one learns of it by
// ErrLeaseLost. One round trip per 400 messages on SQL Server, per 1000 elsewhere.
func (q *Queue[T]) Cancel(ctx context.Context, ids ...ID) ([]ID, error) {
	core := q.core
	found, err := core.cancel(ids, core.sql, func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return core.once(ctx, st, scan) })
	return found, core.fail("cancel", err)
}

// CancelTx is Cancel in the caller's transaction: the messages are gone if and when that
// commits. It waits for locked rows as long as ctx lets it, and settles of the messages
// wait until the transaction ends. After an error roll back.
func (q *Queue[T]) CancelTx(ctx context.Context, tx Tx, ids ...ID) ([]ID, error) {
	if err := checkTx(tx); err != nil {
		return nil, fmt.Errorf("chanq: cancel: %w", err)
	}
	core := q.core
	core.inTx(ctx, tx) // so that InTx knows what an error of its commit means
	found, err := core.cancel(ids, core.sql.InTx(), func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
		return session.RunTx(ctx, tx, st, scan)
	})
	return found, core.failTx("cancel", err)
}

// queue is what the parts of a Queue share; it knows nothing of T.
type queue struct {
	db        *sql.DB
	name      string
	label     string // Config.Label, or the name
	cfg       Config
	slots     int // of an ordered queue, or 0
	dialect   sqlbatch.Dialect
	names     sqlbatch.Names
	sql       sqlbatch.Queue // of these names
	table     *table.Queue
	key       notify.Key
	debouncer notify.Debouncer

	recorder    recorder
	sampleEvery time.Duration // 10 s, but for tests
}

// newQueue checks what op was given, and finds the dialect, for which it might ask the database. Its errors are complete.
func newQueue(ctx context.Context, op string, db *sql.DB, name string, cfg Config) (*queue, error) {
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
	d, err := table.DialectOf(ctx, db, string(cfg.Dialect))
	if session.Unconnected(err) {
		return nil, &OpError{Op: op, Queue: label, Err: fmt.Errorf("%w: %w", ErrUnavailable, err)}
	}
	if err != nil {
		return refuse(err)
	}
	names := cfg.names(name, 0)
	if err := sqlbatch.CheckNames(names); err != nil {
		return refuse(err)
	}
	q := &queue{
		db: db, name: name, label: label, cfg: cfg, dialect: d,
		names: names, sql: d.Queue(names), key: notify.Key{DB: db, Schema: schemaOf(d, cfg.Schema), Queue: name}, sampleEvery: sampleEvery,
	}
	q.table = &table.Queue{Dialect: d, SQL: q.sql, Classify: q.classify}
	q.debouncer.Queue = q.key.Schema + "." + name
	return q, nil
}

// render renders the statements, which costs milliseconds, if what is known of the queue has
// changed their names.
func (q *queue) render() {
	if names := q.cfg.names(q.name, q.slots); names != q.names {
		q.names, q.sql = names, q.dialect.Queue(names)
		q.table.SQL = q.sql
	}
}

// on returns the statements of the queue, on sessions.
func (q *queue) on(s *session.Part) table.Table { return table.Table{Queue: q.table, Part: s} }

// ordered says that it is an ordered queue.
func (q *queue) ordered() bool { return q.slots > 0 }

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

// wake has all idle consumers look at once.
func (q *queue) wake() {
	q.key.Wake()
	q.debouncer.Notify(0, notify.AnySlot, false)
}

func (q *queue) cancel(ids []ID, statements sqlbatch.Queue, run runner) (found []ID, err error) {
	err = table.EachChunk(q.dialect, ids, func(chunk [][16]byte) error {
		return run(statements.Cancel(chunk), func(rows *sql.Rows) error {
			var raw sql.RawBytes
			if err := rows.Scan(&raw); err != nil {
				return err
			}
			found = append(found, ID(raw))
			return nil
		})
	})
	return found, err
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

// schemaOf is the schema that a Config means: the default one has two names, "" and
// its own.
func schemaOf(d sqlbatch.Dialect, schema string) string {
	if schema == "" {
		return d.Traits().Schema
	}
	return schema
}
