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
//	for lease := range consumer.C() { // until nothing is due
//		fmt.Println("order", lease.Body.Number)
//		check(lease.Ack()) // joins the next batch
//	}
//	check(consumer.Shutdown(ctx)) // nil: all acks are stored
//
// The table is in SQL Server, PostgreSQL or SQLite. In your module: go get github.com/chanq/chanq@latest.
//
// Start with Migrate, once, and Open. Then choose:
//
//   - To send a few messages, Queue.Send. To send many, a Producer.
//   - To receive, Queue.Consume. Consumer.Handle and HandleBatches call your function in a pool of workers. Consumer.C,
//     All and Receive give you leases to settle.
//   - To send or ack together with your rows, InTx with Queue.SendTx and Delivery.AckTx.
//   - To replace a message by others in the next queue, Pipe.
//
// Delivery is at least once. Each claim gives a message a new, greater fence (fencing token), and every later write
// checks it. So a consumer whose lease was lost cannot settle a message that another one holds. ARCHITECTURE.md
// describes the path of a message, function by function.
//
// # Stopping
//
// Handle, HandleBatches and Pipe stop in these steps by themselves. If you read the channel, call Shutdown.
//
//   - After Stop, a cancelled context or a permanent error: claims stop, and leases that no reader has taken are
//     released.
//   - DrainFor later, or when the context of Shutdown is cancelled: the contexts of leases are cancelled with
//     ErrStopped, and an error releases the message.
//   - 1 s later: leases that are held are released.
//   - 5 s later: settles that are not stored are given up. Their leases expire.
//
// A release does not count as an attempt. Leases that were given to AckTx are left to their transaction. The
// repository's docs folder has guides.
package chanq

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
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

// Queue is one queue of messages whose bodies are of type T. It is safe for concurrent use, holds no connection and no
// goroutine, and does not need to be closed.
//
// On SQLite, which has one writer, call SendTx, AckTx and CancelTx while your goroutine holds a transaction. Any other
// call that goes to the database, such as Send, Flush, Wait, Shutdown or Close, would wait for your transaction until
// its context is cancelled.
type Queue[T any] struct{ core *queue }

// Open opens a queue whose tables Migrate created, with the same arguments. It costs two round trips and starts no
// goroutine. Close db after the last Producer and Consumer have stopped.
//
// Open never changes the schema. Its errors say what to do: ErrNoSchema, ErrNewerSchema, ErrSpec, or a database that
// would break a guarantee, for example ErrNotDurable (docs/operate/schema.md).
//
// A body that cannot be decoded into T is dead-lettered immediately (CauseUndecodable), so a wrong T dead-letters all
// messages; chanqadmin.Queue.Redrive makes them ready again. T cannot be an interface with methods.
func Open[T any](ctx context.Context, db *sql.DB, queue string, cfg Config) (*Queue[T], error) {
	core, err := openCore(ctx, db, queue, cfg)
	return queueOf[T](core, err)
}

// OpenTx is Open in your transaction, on the connection of tx, for packages that learn there of a queue: another
// connection might not be free. It does not check the settings of the database. Set Config.Dialect. It costs one round
// trip.
func OpenTx[T any](ctx context.Context, tx Tx, db *sql.DB, queue string, cfg Config) (*Queue[T], error) {
	if err := checkTx("open", tx); err != nil {
		return nil, err
	}
	core, err := openCoreTx(ctx, tx, db, queue, cfg)
	return queueOf[T](core, err)
}

func queueOf[T any](core *queue, err error) (*Queue[T], error) {
	if err != nil {
		return nil, err
	}
	if t := reflect.TypeFor[T](); core.cfg.Codec == JSON && t.Kind() == reflect.Interface && t.NumMethod() > 0 {
		return nil, core.failed("open", fmt.Errorf("no JSON can be decoded into a %v: open the queue with a struct, "+
			"any, or json.RawMessage and Message.Type, or set Config.Codec", t))
	}
	return &Queue[T]{core}, nil
}

// Name returns the queue's name.
func (q *Queue[T]) Name() string { return q.core.names.Queue }

// Spec returns the stored Spec of the queue as this process last read it: in Open, or with a consumer's heartbeat.
func (q *Queue[T]) Spec() Spec { return specOf(q.core.names.Slots, q.core.table.Policy()) }

// Label returns the queue's name in errors, hooks and metrics: Config.Label, or its name.
func (q *Queue[T]) Label() string { return q.core.cfg.Label }

// DB returns the database that the queue was opened on, for packages that run further statements: see Names.
func (q *Queue[T]) DB() *sql.DB { return q.core.db }

// Raw returns the queue with encoded bodies, for packages that store messages and send them later: see Encode.
func (q *Queue[T]) Raw() *Queue[[]byte] { return &Queue[[]byte]{q.core} }

// Encode makes the checks of Send, and returns the body that it would store.
func (q *Queue[T]) Encode(m Message[T]) ([]byte, error) {
	row, _, err := m.row(q.core)
	return row.Body, q.core.failed("encode", err)
}

// Send stores messages and waits for the commit, without a Producer. After a nil error all of them are in the database,
// after an error none, unless it is Unknown. You get a Receipt for each message, in order. For many concurrent sends a
// Producer is faster.
//
// Send repeats its statement until ctx is cancelled, unless the database rejects a message: without a deadline it waits
// until an outage is over. Then you get an *OpError with the cause of ctx. To send again, set the IDs of the receipts:
// see Message.ID.
//
// It borrows one connection, and costs one round trip per 500 messages or 4 MiB of bodies. It costs one more if a
// DedupKey or your own ID is already in the queue, and two for a transaction if there are several statements, keys or
// such IDs.
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
		var slots notify.Slots
		addSlots(&slots, rows)
		core.signals.Signal(len(rows), slots, false)
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
	core.sent(SentEvent{Messages: len(rows) - duplicates, Duplicates: duplicates, Bytes: bytes,
		Took: time.Since(began)})
	return receipts, nil
}

// Wake makes idle consumers of this queue poll immediately. Call it after your own transaction with SendTx has
// committed; InTx does it for you. It costs no round trip. Other processes are woken by a Notifier, or poll within
// ConsumerConfig.PollEvery (1 s).
func (q *Queue[T]) Wake() {
	q.core.signals.Wake()
}

// Empty reports whether the queue has no ready, scheduled or leased message. Use it to decide that a queue is drained:
// on SQL Server chanqadmin.Queue.Stats leaves out locked rows. It costs one round trip and waits for no locked row. On
// SQL Server it locks the table of an empty queue against writers while it reads.
//
// Empty never returns true while a committed message is in the queue. A message counts until its ack has committed:
// while an AckTx is open, and while an Ack waits to be written (see Consumer.Flush). On SQL Server, Empty can also
// return false while a transaction that wrote to the queue is open: call it again.
func (q *Queue[T]) Empty(ctx context.Context) (empty bool, err error) {
	err = q.core.once(ctx, q.core.table.SQL.Empty(), func(rows *sql.Rows) error { return rows.Scan(&empty) })
	return empty, q.core.fail("empty", err)
}

// Cancel deletes messages that are ready, scheduled or leased, and returns the IDs that it found. It costs one round
// trip per 1000 messages, on SQL Server per 400.
//
// If a handler of any process works on such a message, its context is cancelled with ErrCancelled within
// ConsumerConfig.PollEvery (1 s), unless it runs for less than that. Settles return ErrCancelled, or ErrLeaseLost if
// the consumer does not know yet. Either Cancel or the ack takes effect, even with AckTx, never both. A message in the
// buffer of a consumer might still be delivered. See docs/guides/long-jobs.md.
func (q *Queue[T]) Cancel(ctx context.Context, ids ...ID) ([]ID, error) {
	return runAlone(ctx, q.core, "cancel", "use CancelTx", table.ByID(ctx, ids, sqlbatch.Queue.Cancel))
}

// CancelTx is Cancel in your transaction: the messages are deleted when it commits, and their settles wait for it. It
// waits for locked rows until ctx is cancelled. After an error, roll back.
func (q *Queue[T]) CancelTx(ctx context.Context, tx Tx, ids ...ID) ([]ID, error) {
	return runInTx(ctx, q.core, tx, "cancel", table.ByID(ctx, ids, sqlbatch.Queue.Cancel))
}

// RunNow makes scheduled messages due now, for example before a retry, and returns the IDs it found. Attempts stay.
// It leaves out ready and leased messages, and all messages of an ordered queue. It costs as much as Cancel, and wakes
// consumers as Send does.
func (q *Queue[T]) RunNow(ctx context.Context, ids ...ID) ([]ID, error) {
	if q.core.table.Ordered {
		return nil, nil
	}
	defer q.Wake()
	return runAlone(ctx, q.core, "run now", "use RunNowTx", table.ByID(ctx, ids, sqlbatch.Queue.RunNow))
}

// RunNowTx is RunNow in your transaction: the messages are due when it commits. After your commit call Wake; InTx does
// it for you. It waits for locked rows until ctx is cancelled. After an error, roll back.
func (q *Queue[T]) RunNowTx(ctx context.Context, tx Tx, ids ...ID) ([]ID, error) {
	if q.core.table.Ordered {
		return nil, nil
	}
	if t := q.core.inTx(ctx, tx); t != nil {
		t.stores(q.core, nil, 0)
	}
	return runInTx(ctx, q.core, tx, "run now", table.ByID(ctx, ids, sqlbatch.Queue.RunNow))
}

// Find returns the IDs of ready, scheduled and leased messages with these DedupKeys, for Cancel or RunNow. It
// costs one round trip per 1000 keys, on SQL Server per 400.
func (q *Queue[T]) Find(ctx context.Context, keys ...string) ([]ID, error) {
	return runAlone(ctx, q.core, "find", "use FindTx", byKey(ctx, keys))
}

// FindTx is Find in your transaction. After an error, roll back.
func (q *Queue[T]) FindTx(ctx context.Context, tx Tx, keys ...string) ([]ID, error) {
	return runInTx(ctx, q.core, tx, "find", byKey(ctx, keys))
}

// runAlone runs statements in their own sessions. remedy is what to call in a transaction of InTx.
func runAlone(ctx context.Context, q *queue, op, remedy string, do func(table.Insert) ([]ID, error)) ([]ID, error) {
	if err := q.outsideTx(ctx, remedy); err != nil {
		return nil, q.failed(op, err)
	}
	found, err := do(table.Insert{Queue: q.table, Build: q.table.SQL, Run: q.once})
	return found, q.fail(op, err)
}

// runInTx runs statements in the caller's transaction.
func runInTx(ctx context.Context, q *queue, tx Tx, op string, do func(table.Insert) ([]ID, error)) ([]ID, error) {
	if err := checkTx(op, tx); err != nil {
		return nil, err
	}
	q.inTx(ctx, tx) // so that InTx knows what an error of its commit means
	found, err := do(q.table.InTx(tx))
	return found, q.failTx(op, err)
}

// byKey returns a function that finds live messages by their dedup keys.
func byKey(ctx context.Context, keys []string) func(table.Insert) ([]ID, error) {
	return func(in table.Insert) (ids []ID, err error) {
		for chunk := range slices.Chunk(keys, in.Dialect.Traits().FindIDs) {
			for _, key := range chunk {
				if err := checkKey("key", key, sqlbatch.MaxKey); err != nil {
					return ids, &unfitError{err}
				}
			}
			found, err := in.Find(ctx, nil, chunk)
			if err != nil {
				return ids, err
			}
			for _, m := range found {
				ids = append(ids, m.ID)
			}
		}
		return ids, nil
	}
}

// Names are for SQL statements of your own.
type Names struct {
	Dialect Dialect
	Schema  string // Config.Schema
	Queue   string // "" if they are not of a queue
}

// Names returns the names for statements of your own.
func (q *Queue[T]) Names() Names {
	return Names{Dialect(q.core.table.Dialect.Name()), q.core.cfg.Schema, q.Name()}
}

// SQL returns a text in the words of its database:
//
//   - {live}, {dead} and {done}: the tables of the queue, quoted and with their schema; {chanq__x}: that table;
//   - {create chanq__x}: creates that table unless it exists;
//   - {text}, {bytes}: types of columns, of up to 400 characters (SQL Server compares them by its collation, others by
//     their codes) and of up to 1 GiB;
//   - {now}: the time of the database, in Unix milliseconds;
//   - ?1: the first argument.
func (n Names) SQL(text string) string {
	d, err := table.DialectNamed("Names.Dialect", string(n.Dialect))
	if err != nil {
		panic(err)
	}
	return d.Text(sqlbatch.Names{Schema: n.Schema, Queue: n.Queue}, text)
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

// newQueue checks the arguments of op and determines the dialect. Its errors need no further wrapping.
func newQueue(op string, db *sql.DB, name string, cfg Config) (*queue, error) {
	if err := sqlbatch.CheckNames(sqlbatch.Names{Queue: name}); err != nil {
		return nil, fmt.Errorf("chanq: %s: %w", op, err) // err names the queue
	}
	cfg.Label = cmp.Or(cfg.Label, name)
	refuse := func(err error) (*queue, error) { return nil, &OpError{Op: op, Queue: cfg.Label, Err: err} }
	cfg, err := cfg.withDefaults()
	if err != nil {
		return refuse(err)
	}
	d, err := table.DialectOf(db, string(cfg.Dialect))
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

// once runs one statement on its own session, within Config.StatementTimeout, for calls outside of a producer or
// consumer.
func (q *queue) once(ctx context.Context, st sqlbatch.Statement, scan session.Scan) error {
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
		return fmt.Errorf("%w; run chanq.Migrate, or the command: chanq migrate %s (%w)", ErrNoSchema, q.names.Queue,
			err)
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
	if errors.Is(err, consume.ErrNoQueue) {
		return sqlbatch.NoSchema
	}
	if unfit := (*unfitError)(nil); errors.As(err, &unfit) || errors.Is(err, consume.ErrDenied) {
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
