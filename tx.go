package chanq

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Sends and acks in a transaction of the caller.

// Tx is an open transaction: a *sql.Tx, *sqlx.Tx or *pgxtx.Tx, the ConnPool of a gorm.DB, or the Tx of an ent client
// with the feature sql/execquery. A *sql.DB or *sql.Conn is refused.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// checkTx returns an error if tx is not an open transaction.
func checkTx(op string, tx Tx) error {
	if base.IsNil(tx) {
		return &OpError{Op: op, Err: errors.New("tx must not be nil")}
	}
	_, begins := reflect.TypeOf(tx).MethodByName("BeginTx")
	_, commits := reflect.TypeOf(tx).MethodByName("Commit") // the BeginTx of some transactions begins a savepoint
	if begins && !commits {
		return &OpError{Op: op, Err: fmt.Errorf("tx is a %T, which commits each statement immediately: give a "+
			"transaction that was begun on it, or use chanq.InTx", tx)}
	}
	return nil
}

// InTx begins a transaction on db with the default isolation level, calls fn, and commits. It rolls back if fn returns
// an error, which InTx returns, if fn panics or calls runtime.Goexit, or if ctx is cancelled (within 1 s). See
// docs/guides/transactions.md.
//
// SendTx, AckTx and CancelTx with tx are part of the transaction. If you wrap tx, for example in a *sqlx.Tx, also pass
// them the context of fn, and use it with no other transaction.
//
//   - After the commit, idle consumers poll immediately, and the leases are known to be acked.
//   - After a rollback you can settle the leases until they expire. In a handler, fn can return DeadLetter, RetryAfter
//     or Snooze.
//   - Errors of InTx itself are *OpErrors with the Op "begin" or "commit". If a commit is Unknown, the transaction
//     might be committed: the connection broke, ctx was cancelled, or fn has closed tx itself. Repeat it with a
//     Message.ID and a unique key of your rows.
//   - With the context of fn, these calls return an error immediately: Send, SendBatch, Cancel, Extend, Flush, Wait,
//     the function Ack, and another InTx. To make one deliberately, use the context of InTx's caller; on SQLite it
//     would wait for the transaction.
func InTx(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	switch {
	case db == nil || fn == nil:
		return errors.New("chanq: in tx: db and fn must not be nil")
	case openIn(ctx) != nil:
		return errors.New("chanq: in tx: ctx comes from another InTx: use the transaction of that call")
	case ctx.Err() != nil: // longer would hide it
		return &OpError{Op: "begin", Err: context.Cause(ctx)}
	}
	longer, end := session.Outlasting(ctx, session.RollbackGrace)
	defer end()
	tx, err := db.BeginTx(longer, nil)
	if err != nil {
		return &OpError{Op: "begin", Err: err}
	}
	t := &inTx{tx: tx, db: db}
	openTxs.Store(tx, t)
	defer openTxs.Delete(tx)
	commits := false
	defer func() {
		if !commits {
			_ = tx.Rollback()
			t.ended(false, false)
		}
	}()
	if err := fn(context.WithValue(ctx, inTxKey{}, t), tx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return &OpError{Op: "commit", Err: context.Cause(ctx)}
	}
	commits = true
	return t.commit(longer)
}

// inTxKey is the key of an inTx in the context that its fn gets.
type inTxKey struct{}

// openIn returns the inTx that ctx belongs to, or nil if its InTx has returned, or there is none.
func openIn(ctx context.Context) *inTx {
	if t, _ := ctx.Value(inTxKey{}).(*inTx); t != nil {
		if _, open := openTxs.Load(t.tx); open {
			return t
		}
	}
	return nil
}

// inTx is the transaction of an InTx, and the sends and acks in it.
type inTx struct {
	tx *sql.Tx
	db *sql.DB

	mu     sync.Mutex // guards the fields below; never held over a statement
	used   *queue     // a queue that was used, or nil
	sent   map[*queue]*sentInTx
	leases map[*lease.Lease]bool // given to AckTx; true: the transaction has acked it
}

// sentInTx counts the messages sent to a queue.
type sentInTx struct {
	SentEvent
	slots notify.Slots
}

// openTxs has the inTx of each *sql.Tx whose InTx has not returned.
var openTxs sync.Map

// inTx returns the inTx of a *sql.Tx, or nil if it has none. A tx of another type might wrap the transaction of the
// InTx that ctx belongs to.
func (q *queue) inTx(ctx context.Context, tx Tx) *inTx {
	t, _ := ctx.Value(inTxKey{}).(*inTx)
	if given, plain := tx.(*sql.Tx); plain {
		open, _ := openTxs.Load(given)
		t, _ = open.(*inTx)
	}
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used == nil {
		t.used, t.sent, t.leases = q, map[*queue]*sentInTx{}, map[*lease.Lease]bool{}
	}
	return t
}

// afterCommit is the remedy for calls without a Tx variant.
const afterCommit = "call it after InTx has returned"

// outsideTx returns an error if ctx belongs to an open InTx on the database of q: the call would not be part of the
// transaction, and on a database with one writer it would wait for it until ctx is cancelled.
func (q *queue) outsideTx(ctx context.Context, remedy string) error {
	if t := openIn(ctx); t == nil || t.db != q.db {
		return nil
	}
	return errors.New("ctx belongs to a transaction of InTx: " + remedy)
}

// stores records that rows are stored if the transaction is committed.
func (t *inTx) stores(q *queue, rows []sqlbatch.Row, duplicates int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sent[q]
	if s == nil {
		s = &sentInTx{}
		t.sent[q] = s
	}
	for i := range rows {
		s.Bytes += len(rows[i].Body)
	}
	s.Messages += len(rows) - duplicates
	s.Duplicates += duplicates
	addSlots(&s.slots, rows)
}

// acks records that a lease was passed to AckTx, and whether its message is acked if the transaction is committed.
func (t *inTx) acks(l *lease.Lease, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases[l] = held
}

// commit commits the transaction.
func (t *inTx) commit(ctx context.Context) error {
	err := cmp.Or(t.tx.Commit(), ctx.Err()) // an answer that comes later is not safe: see session.execute
	if err == nil {
		t.ended(true, true)
		return nil
	}
	unknown := true
	switch {
	case errors.Is(err, sql.ErrTxDone):
		err = fmt.Errorf("fn has ended the transaction: it must return nil to commit, or an error to roll back: %w",
			err)
	case errors.Is(err, driver.ErrBadConn): // a driver may return it after it has sent the COMMIT
	default:
		t.mu.Lock()
		unknown = t.used == nil || t.used.classify(err) == sqlbatch.Unknown
		t.mu.Unlock()
	}
	t.ended(false, unknown)
	return &OpError{Op: "commit", Unknown: unknown, Err: err}
}

// ended does the work after the end of the transaction: see InTx. maybe reports that it might be committed.
func (t *inTx) ended(committed, maybe bool) {
	t.mu.Lock()
	sent, leases := maps.Clone(t.sent), maps.Clone(t.leases)
	t.mu.Unlock()
	acked := map[*consumer][]*lease.Lease{}
	for l, held := range leases {
		switch {
		case committed && held:
			c := holderOf(l)
			acked[c] = append(acked[c], l)
		case committed, !maybe:
			l.RolledBack.Store(true)
		case held:
			homeOf(l).settled(SettledEvent{Attempted: 1})
		}
	}
	for c, group := range acked {
		c.engine.Committed(group)
	}
	for q, s := range sent {
		if !maybe {
			continue
		}
		messages := s.Messages + s.Duplicates
		switch {
		case messages == 0: // of RunNowTx
		case committed:
			q.sent(s.SentEvent)
		default:
			q.sent(SentEvent{Attempted: s.Messages})
		}
		q.signals.Key.Wake()
		q.signals.Debouncer.Notify(messages, s.slots, false)
	}
}

// SendTx stores messages in your transaction: they are in the queue after the commit. You get a Receipt for each, in
// order. After the commit of InTx, idle consumers poll immediately; after your own commit call Wake. An invalid message
// leaves the transaction unchanged; after any other error roll back.
//
// It costs one round trip per 500 messages or 4 MiB of bodies. It costs one more if a DedupKey or your own ID is
// already in the queue, and one to check the database of tx if it is not from InTx. Until your transaction is over,
// sends of the same DedupKey or ID wait for it. It is safe for concurrent use, with a transaction per goroutine.
func (q *Queue[T]) SendTx(ctx context.Context, tx Tx, ms ...Message[T]) ([]Receipt, error) {
	if err := checkTx("send", tx); err != nil {
		return nil, err
	}
	core := q.core
	rows, receipts, keyed, err := rowsOf(core, ms)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	t := core.inTx(ctx, tx)
	if t == nil || t.db != core.db {
		if err := core.isIn(ctx, tx); err != nil {
			return nil, core.failTx("send", err)
		}
	}
	began, inserts := time.Now(), send.InsertsOf(core.table.InTx(tx))
	stored := make([]send.Receipt, len(rows))
	if err := inserts.StoreAll(ctx, rows, stored, keyed, core.mostRows(), defaultBatchBytes); err != nil {
		return nil, core.failTx("send", err)
	}
	duplicates := addDuplicates(receipts, stored)
	if t != nil {
		t.stores(core, rows, duplicates)
	} else {
		// Only the caller learns whether it is committed
		core.sent(SentEvent{Attempted: len(rows) - duplicates, Took: time.Since(began)})
	}
	return receipts, nil
}

// isIn returns an error if tx is a transaction of another database.
func (q *queue) isIn(ctx context.Context, tx Tx) error {
	var found table.Stored
	err := session.RunTx(ctx, tx, q.table.SQL.InTx().Version(), found.Scan)
	if err == nil && found.Identity != q.identity {
		err = &unfitError{errors.New("tx is a transaction of another database: begin it on the database on which " +
			"this Queue was opened; if the queue was dropped and made again, open it again")}
	}
	return err
}

// AckTx acks the message in your transaction: it leaves the queue with the commit. It costs one round trip; for many
// leases use the function AckTx. ErrLeaseLost, in an *OpError, means that you no longer hold the lease: roll back.
//
// Call it late, because from then on the lease is not extended. After a rollback you can settle it until it expires.
// chanq learns of the commit of InTx. After another transaction, the next message of its key on an ordered queue waits
// until the consumer has checked, up to 1.3 s.
func (d *Delivery) AckTx(ctx context.Context, tx Tx) error {
	if err := checkTx("ack", tx); err != nil {
		return err
	}
	if d.lease == nil {
		return errMadeByHand
	}
	errs, err := ackTx(ctx, tx, []*lease.Lease{d.lease})
	return cmp.Or(err, errs[0])
}

// AckTx is Delivery.AckTx for many leases of one queue, for example from Consumer.Receive. It costs one round trip per
// 1000 messages, on SQL Server per 333.
//
// After a nil error you hold them all. A *BatchError has an entry for each lease, in order: nil, or an *OpError of
// ErrLeaseLost or ErrSettled. Then roll back, because the others might be deleted. After the rollback you can use the
// held leases again until they expire.
func AckTx[T any](ctx context.Context, tx Tx, leases ...*Lease[T]) error {
	if err := checkTx("ack", tx); err != nil {
		return err
	}
	all, err := leasesOf(leases)
	if err != nil {
		return err
	}
	errs, held := make([]error, len(all)), true
	for i, l := range all {
		if here, first := homeOf(l), homeOf(all[0]); here.signals.Key != first.signals.Key {
			return fmt.Errorf("chanq: ack: leases of two queues, %s and %s: all must be of one queue, and of one shard",
				first.cfg.Label, here.cfg.Label)
		}
		if err := lease.NotHeld(l); err != nil {
			errs[i], held = leaseError(l, "ack", false, err), false
		}
	}
	if held {
		errs, err = ackTx(ctx, tx, all)
	}
	return cmp.Or(err, batchError("ack", errs))
}

// ackTx deletes the messages of leases of one queue in tx, and returns an error for each that was not held. err is that
// of the transaction: the leases end in the database, or are settled after the rollback.
func ackTx(ctx context.Context, tx Tx, leases []*lease.Lease) (errs []error, err error) {
	errs = make([]error, len(leases))
	var items, held []sqlbatch.Item
	for i, l := range leases {
		if err := l.EnterTx(); err != nil {
			errs[i] = leaseError(l, "ack", false, err)
			continue
		}
		items = append(items, l.Item)
	}
	if len(items) == 0 {
		return errs, nil
	}
	q := homeOf(leases[0])
	t := q.inTx(ctx, tx)
	slices.SortFunc(items, table.CompareItems)
	items = slices.Compact(items)
	for chunk := range slices.Chunk(items, q.table.Dialect.Traits().AckItems) {
		if err = session.RunTx(ctx, tx, q.table.AckStatement(q.table.SQL.InTx(), chunk),
			session.CollectItems(&held)); err != nil {
			held = nil
			break
		}
	}
	slices.SortFunc(held, table.CompareItems)
	for i, l := range leases {
		if errs[i] != nil {
			continue
		}
		_, found := slices.BinarySearchFunc(held, l.Item, table.CompareItems)
		if t != nil {
			t.acks(l, found)
		}
		if err == nil && !found {
			errs[i] = leaseError(l, "ack", false, ErrLeaseLost)
			l.LoseInTx()
		}
	}
	if t == nil && len(held) > 0 {
		q.settled(SettledEvent{Attempted: len(held)}) // only the caller learns whether it is committed
	}
	return errs, q.failTx("ack", err)
}

// failTx is fail for a statement in the caller's transaction. Its outcome is not Unknown: nothing is stored before the
// commit.
func (q *queue) failTx(op string, err error) error {
	err = q.fail(op, err)
	if failed, ok := err.(*OpError); ok {
		failed.Unknown = false
	}
	return err
}
