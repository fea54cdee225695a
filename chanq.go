// Package chanq turns a table in a SQL database into Go channels:
//
//	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
//	check(err)
//	for n := range 3 {
//		producer.C() <- chanq.Msg(Order{Number: n})
//	}
//	check(producer.Close(ctx)) // nil: all are stored
//
//	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
//	check(err)
//	for lease := range consumer.C() { // until the queue is empty
//		fmt.Println("order", lease.Body.Number)
//		check(lease.Ack()) // joins the next batch
//	}
//	check(consumer.Shutdown(ctx)) // nil: all acks are stored
//
// In your module: go get github.com/chanq/chanq@latest.
//
// A Producer batches sends into multi-row INSERTs. A Consumer claims batches ahead of its readers and delivers them as leases on a
// buffered channel. Acks and nacks are batched into periodic statements. chanq is made for SQL Server. The same code runs on
// PostgreSQL, and on SQLite, which needs no installation.
//
// Delivery is at least once. Each claim of a message assigns a fence (a fencing token), an integer that increases with every claim,
// and every later write checks it. A consumer whose lease has ended cannot settle a message that another consumer holds.
//
// Begin with Migrate, once, and Open. Queue.Send sends a few messages, and Queue.Producer many: through a channel (Producer.C) or
// waiting for the database (Producer.Send). Queue.Consume reads: Consumer.C, Consumer.All and Consumer.Receive yield leases to settle,
// and Consumer.Handle and HandleBatches call a function in a pool of workers. Pipe is a stage of a pipeline.
// ConsumerConfig.StopWhenIdle is for programs that drain a queue and exit.
//
// Queue.SendTx, Delivery.AckTx and AckTx join the caller's transaction: a message and the rows that it belongs to are stored together
// or not at all. InTx runs such a transaction.
//
// The path of a message (ARCHITECTURE.md describes it function by function):
//
//	Producer.Send → a batch → INSERT → claim → a feed → Consumer.C → your code → Lease.Ack → a batch → DELETE
//
// Meanwhile the extender extends the leases that the process holds.
//
// # The end of a consumer
//
// Handle, HandleBatches and Pipe end their consumer, and return as soon as all its work has ended. Shutdown does the same for programs
// that read the channel.
//
//   - Stop, the end of the context, or a permanent error: no new call begins, and calls that have begun continue. Delivery.Stopping is
//     closed. Leases that no reader has taken are released.
//   - DrainFor later, or at the end of Shutdown's context: the contexts of leases end with ErrStopped. An error that a handler returns
//     from now on releases its message.
//   - 1 s later: leases that are still held are released, and settles by their holders return ErrLeaseLost. Handlers that have not
//     returned are counted in the error.
//   - 5 s later: settles that are not stored are counted in the error. Their leases expire in the database.
//
// A batch that was received before the stop is still passed to its handler. No release counts as an attempt. Leases that were given
// to AckTx are left to their transaction.
//
// A queue is in one database. Package chanqshards combines several databases into one queue.
//
// docs/README.md in the repository is the index of the documentation.
package chanq

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/history"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Queue is one queue of messages whose bodies are of type T. It is safe for concurrent use and holds no connection and no goroutine
// of its own.
//
// SQLite has one writer. A goroutine that holds a transaction there may call SendTx, AckTx and CancelTx. Any other call of chanq that
// goes to the database (Send, Flush, Wait, chanqadmin.Queue.Stats …) would wait for the transaction, and the transaction for the call,
// until the call's context ends. With the context that InTx passes to its function such calls return an error immediately instead, on
// every database.
type Queue[T any] struct{ core *queue }

// Open opens a queue whose tables Migrate created, with the same arguments. It costs two round trips and starts no goroutine. A Queue
// does not need to be closed. The caller owns db, and closes it after the last Producer and Consumer have ended.
//
// A body that cannot be decoded into T is dead-lettered immediately (CauseUndecodable). A consumer that opens the queue with a wrong T
// therefore moves all messages to the dead-letter table; chanqadmin.Queue.Redrive makes them ready again.
//
// Open never changes the schema. The errors ErrNoSchema, ErrNewerSchema and ErrSpec state the remedy. Open also refuses a database
// that would break the guarantees of chanq: tables from before the first release, an encoding that cannot represent all messages,
// commits that may be lost (ErrNotDurable; see Config.Durability).
//
// Open refuses a T that is an interface with methods, into which JSON can never be decoded.
func Open[T any](ctx context.Context, db *sql.DB, queue string, cfg Config) (*Queue[T], error) {
	core, err := openCore(ctx, db, queue, cfg)
	if err != nil {
		return nil, err
	}
	if t := reflect.TypeFor[T](); core.cfg.Codec == JSON && t.Kind() == reflect.Interface && t.NumMethod() > 0 {
		return nil, core.failed("open", fmt.Errorf("no JSON can be decoded into a %v: open the queue with a struct, any, or json.RawMessage and Message.Type, or set Config.Codec", t))
	}
	return &Queue[T]{core}, nil
}

// Name returns the queue's name.
func (q *Queue[T]) Name() string { return q.core.names.Queue }

// Spec returns the stored Spec of the queue as this process last read it: when the Queue was opened, or with the last heartbeat of
// one of its consumers.
func (q *Queue[T]) Spec() Spec { return specOf(q.core.names.Slots, q.core.table.Policy()) }

// Label returns the queue's name in errors, hooks and metrics: Config.Label, or its name.
func (q *Queue[T]) Label() string { return q.core.cfg.Label }

// Send stores messages and waits for the commit, without a Producer. A nil error means that all of them are in the database. If the
// error is not nil, none of them is, unless the error is Unknown. There is a Receipt for each message, in order. Without messages Send
// does nothing.
//
// Send repeats a statement that the database refuses or rolls back, or whose outcome is unknown, until ctx ends, with the same IDs. If
// ctx has no deadline, Send therefore waits until an outage ends. When ctx ends, the error is an *OpError that wraps its cause and
// reports in Unknown whether the messages may be stored. Messages that are sent again with the IDs of the receipts are not stored
// twice while they are in the queue. If the database rejects a message, Send returns immediately. All messages are checked before the
// first is stored.
//
// Send borrows one connection of the *sql.DB for the call. One round trip stores up to 500 messages or 4 MiB of bodies. If a DedupKey
// or an ID set by the caller is already in the queue, Send costs one more. Larger sends, and several messages with a DedupKey or such
// an ID, use one transaction, which costs two more. Each attempt of a statement has Config.StatementTimeout. For many concurrent sends
// use a Producer, which stores the messages of many calls with one statement. Send is safe for concurrent use. On SQLite a goroutine
// that holds a transaction must not call it: see Queue.
func (q *Queue[T]) Send(ctx context.Context, ms ...Message[T]) ([]Receipt, error) {
	core := q.core
	rows, receipts, keyed, err := rowsOf(core, ms)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	if err := core.outsideTx(ctx, "use SendTx"); err != nil {
		return receipts, core.failed("send", err)
	}
	began := time.Now()
	part := session.OpenOnce(core.db, core.table.Dialect)
	defer part.Close()
	direct := send.DirectOn(core.on(part))
	direct.Rows, direct.Bytes, direct.Timeout = core.mostRows(), defaultBatchBytes, core.cfg.StatementTimeout
	stored, unknown, err := direct.Send(ctx, rows, keyed)
	if err == nil || unknown {
		core.signals.Signal(len(rows), core.slotsOf(rows), false)
	}
	if err != nil {
		failed := &OpError{Op: "send", Queue: core.cfg.Label, Unknown: unknown, Err: core.explain(err)}
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
	return receipts, nil
}

// Wake makes idle consumers of this queue poll immediately. Call it after the commit of your own transaction that used SendTx; InTx
// does the same. It costs no round trip. Consumers of other processes are woken only through a Notifier; without one they poll within
// about 1 s, or ConsumerConfig.PollEvery if that is longer.
func (q *Queue[T]) Wake() {
	q.core.signals.Wake()
}

// Empty reports whether the queue has no ready, scheduled or leased message, whether it is paused or not. Dead and done messages do
// not count. To decide that a queue is drained use Empty instead of the counts of chanqadmin.Queue.Stats: on SQL Server Stats leaves
// out rows that are locked at that moment.
//
// The answer is valid for one moment during the call. Empty never returns true while a committed message is in the queue. A message
// counts until the commit of its ack or of its move to the dead-letter table: while another process holds it, while an AckTx is open,
// and while an Ack waits to be written (see Consumer.Flush). A message that a Producer has not stored, or a SendTx has not committed,
// need not count. On SQL Server Empty may also return false while a transaction that has written to the queue is open. Call it again
// before concluding that a message is left.
//
// Empty costs one round trip, and reads one entry of the primary key if the newest message is live. Otherwise it also reads the
// entries of ended messages that the database has not cleaned up: on PostgreSQL until a vacuum, on SQL Server until its ghost
// cleanup. It never waits for a locked row. On SQL Server, if a first read finds no row, a second one locks the table against writers
// while it reads.
func (q *Queue[T]) Empty(ctx context.Context) (empty bool, err error) {
	err = q.core.once(ctx, q.core.table.SQL.Empty(), func(rows *sql.Rows) error { return rows.Scan(&empty) })
	return empty, q.core.fail("empty", err)
}

// Cancel deletes messages that are ready, scheduled or leased, and returns the IDs that it found. The settle or extension of a lease
// on such a message returns ErrLeaseLost. Cancel costs one round trip per 400 messages on SQL Server, per 1000 on PostgreSQL and
// SQLite.
func (q *Queue[T]) Cancel(ctx context.Context, ids ...ID) ([]ID, error) {
	core := q.core
	if err := core.outsideTx(ctx, "use CancelTx"); err != nil {
		return nil, core.failed("cancel", err)
	}
	found, err := table.Cancel(ctx, table.Insert{Queue: core.table, Build: core.table.SQL, Run: core.once}, ids)
	return found, core.fail("cancel", err)
}

// CancelTx is Cancel in the caller's transaction: the messages are deleted if and when the transaction commits. It waits for locked
// rows until ctx ends. Settles of the messages wait until the transaction ends. After an error, roll back.
func (q *Queue[T]) CancelTx(ctx context.Context, tx Tx, ids ...ID) ([]ID, error) {
	if err := checkTx("cancel", tx); err != nil {
		return nil, err
	}
	core := q.core
	core.inTx(ctx, tx) // so that InTx knows what an error of its commit means
	found, err := table.Cancel(ctx, core.table.InTx(tx), ids)
	return found, core.failTx("cancel", err)
}

// queue is the part of a Queue without a type parameter.
type queue struct {
	db       *sql.DB
	cfg      Config         // with all defaults; Label is set
	names    sqlbatch.Names // of the tables
	table    *table.Queue
	signals  notify.Signals
	recorder history.Recorder
	identity string // of the queue in its database
}

// newQueue checks the arguments of op and determines the dialect, for which it might query the database. Its errors need no further
// wrapping.
func newQueue(ctx context.Context, op string, db *sql.DB, name string, cfg Config) (*queue, error) {
	if err := sqlbatch.CheckNames(sqlbatch.Names{Queue: name}); err != nil {
		return nil, fmt.Errorf("chanq: %s: %w", op, err) // err names the queue
	}
	cfg.Label = cmp.Or(cfg.Label, name)
	refuse := func(err error) (*queue, error) { return nil, &OpError{Op: op, Queue: cfg.Label, Err: err} }
	cfg, err := cfg.withDefaults()
	if err != nil {
		return refuse(err)
	}
	within, cancel := context.WithTimeout(ctx, cfg.StatementTimeout)
	defer cancel()
	d, err := table.DialectOf(within, db, string(cfg.Dialect))
	if session.Unconnected(err) && !session.Hopeless(err) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return refuse(err)
	}
	names := cfg.names(name, 0)
	if err := sqlbatch.CheckNames(names); err != nil {
		return refuse(err)
	}
	q := &queue{db: db, cfg: cfg, names: names}
	q.table = &table.Queue{Dialect: d, SQL: d.Queue(names), Classify: q.classify}
	q.signals.Key = notify.Key{DB: db, Schema: cmp.Or(cfg.Schema, d.Traits().Schema), Queue: name}
	q.signals.Debouncer.Queue = q.signals.Key.Schema + "." + name
	q.recorder = history.Recorder{
		Off: cfg.History == HistoryOff, Every: history.Every, Table: q.table, Run: q.once,
		Task: func() *base.Task { return q.task("history", "record") },
	}
	return q, nil
}

// render builds the statements again if the number of slots changes the names of the queue. That takes milliseconds.
func (q *queue) render(slots int) {
	if names := q.cfg.names(q.names.Queue, slots); names != q.names {
		q.names, q.table.SQL = names, q.table.Dialect.Queue(names)
	}
}

// on returns the statements of the queue, bound to the sessions of s.
func (q *queue) on(s *session.Part) table.Table { return table.Table{Queue: q.table, Part: s} }

// once runs one statement on its own session, within Config.StatementTimeout, for calls outside of a producer or consumer.
func (q *queue) once(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	s := session.OpenOnce(q.db, q.table.Dialect)
	defer s.Close()
	return session.Within(ctx, q.cfg.StatementTimeout, func(ctx context.Context) error { return s.Run(ctx, st, scan) })
}

// fail returns the error of a statement as callers get it, or nil.
func (q *queue) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	unknown := q.classify(err) == sqlbatch.Unknown
	return &OpError{Op: op, Queue: q.cfg.Label, Unknown: unknown, Err: q.explain(err)}
}

// explain adds the remedy to a database error.
func (q *queue) explain(err error) error {
	if q.classify(err) == sqlbatch.NoSchema {
		return fmt.Errorf("%w; run chanq.Migrate, or the command: chanq migrate %s (%w)", ErrNoSchema, q.names.Queue, err)
	}
	return err
}

// failed returns the error of a call in which no statement failed, or nil.
func (q *queue) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, Queue: q.cfg.Label, Err: err}
}

// classify returns the class of an error. It adds chanq's own errors to session.Classify.
func (q *queue) classify(err error) sqlbatch.Class {
	if denied := (*consume.DeniedError)(nil); errors.As(err, &denied) {
		return sqlbatch.Permanent
	}
	if errors.Is(err, consume.ErrNoQueue) {
		return sqlbatch.NoSchema
	}
	if unfit := (*unfitError)(nil); errors.As(err, &unfit) {
		return sqlbatch.Permanent
	}
	if undecided := (*send.UndecidedError)(nil); errors.As(err, &undecided) {
		return sqlbatch.BadRow // the others of its batch may be stored
	}
	return session.Classify(q.table.Dialect, err)
}

// away reports whether err only means that the database did not answer, which says nothing about the tables.
func (q *queue) away(err error) bool {
	class := q.classify(err)
	return class == sqlbatch.Unknown || class == sqlbatch.Refused || class == sqlbatch.RolledBack
}

// unanswered wraps an error for which away is true in ErrUnavailable.
func (q *queue) unanswered(err error) error {
	if q.away(err) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
