package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// InTx, and the types that are accepted as transactions.
var inTx = []test{
	{"G08_InTxCommitsWhatFnDoesOrRollsItBack", inTxEnds},
	{"InTxWakesConsumersAfterTheCommitOnly", inTxWakes},
	{"InTxWakesForMessagesBeforeTheHead", inTxLate},
	{"AfterARollbackOfInTxAHandlerSettles", inTxHandled},
	{"TheCommitOfInTxOpensItsKeysImmediately", inTxKeys},
	{"G08_InTxReportsThatItsCommitIsUnknown", inTxUnknown},
	{"InTxAffectsNoOtherTransaction", inTxOther},
	{"InTxRecognisesItsTransactionWithAnotherContext", inTxByTransaction},
	{"ACallOutsideOfItsOwnInTxIsRefused", inTxOutside},
	{"InTxReturnsWithItsContext", inTxContext},
	{"ATransactionMayBeWrappedAndADatabaseIsRejected", txKinds},
}

// inTx runs InTx with an fn that might leave by runtime.Goexit or panic. It returns the error, or the panic value.
func (w *world) inTx(ctx context.Context, fn func(context.Context, *sql.Tx) error) (panicked any, err error) {
	w.Helper()
	err = errLeft
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		err = chanq.InTx(ctx, w.DB, fn)
	}()
	testdb.Receive(w, done, "InTx ends")
	return panicked, err
}

var errLeft = errors.New("it has not returned")

func inTxEnds(w *world) {
	refused := errors.New("refused")
	for name, end := range map[string]func() error{
		"commits": func() error { return nil },
		"fails":   func() error { return refused },
		"panics":  func() error { panic("in fn") },
		"leaves":  func() error { runtime.Goexit(); return nil },
	} {
		q := w.Queue(name, chanq.Config{})
		ids := testdb.Send(w, q, testdb.Texts("acked", "cancelled")...)
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		panicked, err := w.inTx(w.Soon(), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(w, l.AckTx(ctx, tx))
			_, err := q.SendTx(ctx, tx, testdb.Texts("sent")...)
			require.NoError(w, err)
			found, err := q.CancelTx(ctx, tx, ids[1])
			require.NoError(w, err)
			require.Equal(w, ids[1:], found)
			return end()
		})
		want := map[string]error{"fails": refused, "panics": errLeft, "leaves": errLeft}[name]
		require.Equal(w, want, err, name)
		require.Equal(w, name == "panics", panicked != nil, name)
		if name == "commits" {
			require.NoError(w, l.Wait(w.Soon()))
			require.Equal(w, []string{"sent"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, q, 1, time.Minute))))
			require.Equal(w, chanqadmin.Stats{Leased: 1}, testdb.Counted(w, q), name)
			continue
		}
		require.Equal(w, chanqadmin.Stats{Ready: 1, Leased: 1}, testdb.Counted(w, q), name)
		require.NoError(w, l.Ack(), "after a rollback the lease can be settled")
		require.NoError(w, l.Wait(w.Soon()), name)
	}
}

// notified returns the number of notifications.
func (b *board) notified() int {
	notified, _, _ := b.count()
	return notified
}

func inTxWakes(w *world) {
	b := &board{}
	q := w.Queue("work", chanq.Config{Notifier: b})
	c := testdb.Start(w, q, seldom)
	w.asleep(c, b)
	var asked chanq.ConsumerStats
	w.Eventually("it has been idle for a second", func() bool {
		asked = c.Stats()
		w.pass(time.Second)
		return c.Stats() == asked
	})
	before := b.notified()
	_, _ = w.inTx(w.Soon(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.SendTx(ctx, tx, testdb.Texts("rolled back")...)
		require.NoError(w, err)
		return errLeft
	})
	w.pass(time.Second)
	require.Equal(w, before, b.notified(), "no other process is woken after a rollback")
	require.Equal(w, asked, c.Stats(), "nor a consumer of this one")
	for range 2 {
		require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			for _, m := range testdb.Texts("a", "b", "c") {
				if _, err := q.SendTx(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		}))
		before++
		require.Equal(w, before, b.notified(), "one notification per queue and commit")
		for _, l := range testdb.Take(w, c, 3) {
			require.NoError(w, l.Ack())
		}
		w.asleep(c, b)
	}
}

// inTxLate has a consumer claim beyond the position of a message whose transaction is open.
func inTxLate(w *world) {
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("there is one writer: sends wait for an open transaction")
	}
	q := w.Queue("work", alone)
	c := testdb.Start(w, q, seldom)
	require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.SendTx(ctx, tx, testdb.Texts("late")...)
		require.NoError(w, err)
		w.pass(2 * sqlbatch.HeadMargin)
		testdb.Send(w, q, testdb.Texts("early")...)
		require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
		return c.Flush(w.Soon())
	}))
	began := time.Now()
	require.Equal(w, "late", testdb.Take(w, c, 1)[0].Body)
	if w.Engine.Bubble {
		require.Less(w, time.Since(began), 100*time.Millisecond, "it was found by a later rescan")
	}
}

func inTxHandled(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("commit", "swallow", "return")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, Backoff: later})
	refused := errors.New("refused")
	left := make(chan error, 1)
	leases := make(chan *chanq.Lease[string], 3)
	before := w.Faults.Ops()
	go func() {
		left <- c.Handle(1, func(ctx context.Context, l *chanq.Lease[string]) error {
			defer func() { leases <- l }()
			err := chanq.InTx(ctx, w.DB, func(ctx context.Context, tx *sql.Tx) error {
				if err := l.AckTx(ctx, tx); err != nil || l.Body == "commit" {
					return err
				}
				return refused
			})
			if l.Body == "swallow" {
				require.ErrorIs(w, err, refused)
				return nil
			}
			return err
		})
	}()
	for range 3 {
		l := testdb.Receive(w, leases, "a handler returns")
		w.Eventually("its message is settled", func() bool { return l.Wait(w.Soon()) == nil })
	}
	require.Equal(w, chanqadmin.Stats{Scheduled: 1}, testdb.Counted(w, q), "one was nacked, and the others are acked")
	require.Greater(w, w.Faults.Ops(), before)
	c.Stop()
	require.NoError(w, testdb.Receive(w, left, "Handle returns"))
	require.Equal(w, int64(2), c.Stats().Acked, "by the commit, and by the handler that returned nil after a rollback")
	require.Zero(w, c.Stats().Lost)
}

func inTxKeys(w *world) {
	q := w.keys(chanq.Config{})
	testdb.Send(w, q, keyed("a", 1, 3)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	for _, body := range []string{"a/1", "a/2"} { // acked by a reader, so no handler returns
		l := w.next(c, body)
		require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error { return l.AckTx(ctx, tx) }))
		at := time.Now()
		w.Eventually("the next message is delivered", func() bool { return c.Stats().Buffered > 0 })
		if w.Engine.Bubble {
			require.Less(w, time.Since(at), 10*time.Millisecond, "the consumer does not have to query the outcome")
		}
	}
	l := w.next(c, "a/3")
	_, _ = w.inTx(w.Soon(), func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(w, l.AckTx(ctx, tx))
		return errLeft
	})
	require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
	w.ack(w.next(c, "a/3"))
}

func inTxUnknown(w *world) {
	commits := func(op faultdb.Op) bool { return op.Kind == faultdb.Commit }
	for name, applied := range map[string]bool{"applied": true, "lost": false} {
		b := &board{}
		q := w.Queue(name, chanq.Config{Notifier: b})
		testdb.Send(w, q, testdb.Texts("a")...)
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		before := b.notified()
		hit := w.Strike(w.Broken(applied), commits)
		err := chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			if err := l.AckTx(ctx, tx); err != nil {
				return err
			}
			_, err := q.SendTx(ctx, tx, testdb.Texts("b")...)
			return err
		})
		require.NotEmpty(w, hit.Struck())
		w.Faults.Inject(nil)
		var op *chanq.OpError
		require.ErrorAs(w, err, &op)
		require.True(w, op.Unknown, name)
		require.Equal(w, "commit", op.Op)
		require.Contains(w, err.Error(), "chanq: commit (outcome unknown): ")
		require.Equal(w, before+1, b.notified(), "a message might be stored")
		require.NoError(w, l.Lease.Ack(), "the settle finds the outcome")
		if applied {
			require.ErrorIs(w, l.Wait(w.Soon()), chanq.ErrSettled)
		} else {
			require.NoError(w, l.Wait(w.Soon()))
		}
		ready := 0
		if applied {
			ready = 1
		}
		require.Equal(w, chanqadmin.Stats{Ready: ready}, testdb.Counted(w, q), name)
	}

	q := w.Queue("undone", chanq.Config{})
	w.Strike(faultdb.Fail(w.Failure(sqlbatch.RolledBack)), commits)
	err := chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.CancelTx(ctx, tx, chanq.NewID())
		return err
	})
	w.Faults.Inject(nil)
	var op *chanq.OpError
	require.ErrorAs(w, err, &op)
	require.False(w, op.Unknown, "the database has rolled it back")

	err = chanq.InTx(w.Soon(), w.DB, func(_ context.Context, tx *sql.Tx) error { return tx.Commit() })
	require.ErrorAs(w, err, &op)
	require.True(w, op.Unknown)
	require.ErrorContains(w, err, "fn has ended the transaction")
}

func inTxOther(w *world) {
	b := &board{}
	q := w.Queue("work", chanq.Config{Notifier: b})
	testdb.Send(w, q, testdb.Texts("a")...)
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	before := b.notified()
	own := w.begin(w.DB)
	require.NoError(w, l.AckTx(w.Soon(), own))
	w.sendTx(q, own, testdb.Texts("own")...)
	require.NoError(w, own.Commit())
	require.ErrorContains(w, l.Wait(w.Soon()), "its commit is the outcome")
	require.Equal(w, before, b.notified())

	require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
		require.ErrorContains(w, chanq.InTx(ctx, w.DB, func(context.Context, *sql.Tx) error { return nil }), "another InTx")
		_, err := q.SendTx(ctx, own, testdb.Texts("too late")...)
		require.ErrorIs(w, err, sql.ErrTxDone)
		return nil
	}))
	require.Equal(w, before, b.notified(), "as in a transaction of the caller")
	require.Equal(w, chanqadmin.Stats{Ready: 1}, testdb.Counted(w, q))
	if !w.Engine.Dialect.Traits().OneWriter {
		other := w.begin(w.DB)
		require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, _ *sql.Tx) error {
			_, err := q.SendTx(ctx, other, testdb.Texts("rolled back")...)
			return err
		}))
		require.Equal(w, before, b.notified(), "that transaction is still open")
		require.NoError(w, other.Rollback())
	}
	require.ErrorContains(w, chanq.InTx(w.Soon(), nil, func(context.Context, *sql.Tx) error { return nil }), "must not be nil")
	require.ErrorContains(w, chanq.InTx(w.Soon(), w.DB, nil), "must not be nil")
}

func inTxByTransaction(w *world) {
	b := &board{}
	q := w.Queue("work", chanq.Config{Notifier: b})
	testdb.Send(w, q, testdb.Texts("a")...)
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	before := b.notified()
	require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(_ context.Context, tx *sql.Tx) error {
		if err := l.AckTx(w.Soon(), tx); err != nil {
			return err
		}
		_, err := q.SendTx(w.Soon(), tx, testdb.Texts("b")...)
		return err
	}))
	require.Equal(w, before+1, b.notified(), "consumers are woken after the commit")
	require.NoError(w, l.Wait(w.Soon()), "the lease is known to be acked")
}

func inTxOutside(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("cancelled", "acked", "waited for")...)[0]
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	leases := testdb.Take(w, c, 3)[1:]
	other, err := embedded.Open(":memory:")
	require.NoError(w, err)
	defer other.Close()
	require.NoError(w, chanq.Migrate(w.Soon(), other, "elsewhere", chanq.Config{}))
	elsewhere := testdb.OpenOn[string](w, other, "elsewhere", chanq.Config{})
	var kept context.Context
	require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, _ *sql.Tx) error {
		kept = ctx
		ctx, cancel := context.WithTimeout(ctx, testdb.Patience/4)
		defer cancel()
		for _, call := range []struct {
			refused string
			do      func() error
		}{
			{"send work: use SendTx", func() error { _, err := q.Send(ctx, chanq.Msg("x")); return err }},
			{"send work: use SendTx", func() error { _, err := p.Send(ctx, chanq.Msg("x")); return err }},
			{"send work: use SendTx", func() error { _, err := p.SendBatch(ctx, chanq.Msg("x")); return err }},
			{"flush work: call it after InTx has returned", func() error { return p.Flush(ctx) }},
			{"cancel work: use CancelTx", func() error { _, err := q.Cancel(ctx, id); return err }},
			{"run now work: use RunNowTx", func() error { _, err := q.RunNow(ctx, id); return err }},
			{"find work: use FindTx", func() error { _, err := q.Find(ctx, "key"); return err }},
			{"extend work: call it before InTx", func() error { return leases[0].Extend(ctx, time.Hour) }},
			{"ack work: use AckTx", func() error { return chanq.Ack(ctx, leases[0]) }},
			{"wait work: call it after InTx has returned", func() error { _ = leases[1].Ack(); return leases[1].Wait(ctx) }},
			{"flush work: call it after InTx has returned", func() error { return c.Flush(ctx) }},
		} {
			err := call.do()
			op, remedy, _ := strings.Cut(call.refused, ": ")
			require.ErrorContains(w, err, op)
			require.ErrorContains(w, err, ": ctx belongs to a transaction of InTx: "+remedy)
		}
		_, err := elsewhere.Send(ctx, chanq.Msg("x"))
		require.NoError(w, err, "the transaction is on another database")
		return nil
	}))
	_, err = q.Send(kept, chanq.Msg("y"))
	require.NoError(w, err, "the transaction has ended")
}

func inTxContext(w *world) {
	q := w.Queue("work", chanq.Config{})
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(w.Soon())
	err := chanq.InTx(ctx, w.DB, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.SendTx(ctx, tx, testdb.Texts("a")...)
		cancel(why)
		return err
	})
	var op *chanq.OpError
	require.ErrorAs(w, err, &op)
	require.ErrorIs(w, err, why)
	require.False(w, op.Unknown)
	require.Zero(w, testdb.Counted(w, q))
	require.ErrorContains(w, chanq.InTx(ctx, w.DB, func(context.Context, *sql.Tx) error { panic("it was not begun") }), "chanq: begin: ")
}

// wrapped is a transaction like those of sqlx, with savepoints like those of bun.
type wrapped struct{ *sql.Tx }

func (w wrapped) BeginTx(context.Context, *sql.TxOptions) (wrapped, error) { return w, nil }

// pool wraps a transaction like gorm, which exposes only these methods.
type pool interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func txKinds(w *world) {
	q := w.Queue("work", chanq.Config{})
	c := testdb.Start(w, q, seldom)
	for name, wrap := range map[string]func(tx *sql.Tx) chanq.Tx{
		"a transaction": func(tx *sql.Tx) chanq.Tx { return tx },
		"sqlx and bun":  func(tx *sql.Tx) chanq.Tx { return &wrapped{tx} },
		"gorm":          func(tx *sql.Tx) chanq.Tx { return pool(tx) },
	} {
		require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.SendTx(ctx, wrap(tx), testdb.Texts(name)...)
			return err
		}))
		l := testdb.Take(w, c, 1)[0] // the consumer is notified
		require.Equal(w, name, l.Body)
		require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error { return l.AckTx(ctx, wrap(tx)) }))
		require.NoError(w, l.Wait(w.Soon()), name)
	}
	id := testdb.Send(w, q, testdb.Texts("stays")...)[0]
	l := testdb.Take(w, c, 1)[0]
	faults, db := w.Connect() // the consumer polls on the other one
	conn, err := db.Conn(w.Soon())
	require.NoError(w, err)
	defer conn.Close()
	before := faults.Ops()
	const remedy = ", which commits each statement immediately: give a transaction that was begun on it, or use chanq.InTx"
	for _, refused := range []struct {
		tx  chanq.Tx
		why string
	}{
		{db, "tx is a *sql.DB" + remedy},
		{conn, "tx is a *sql.Conn" + remedy},
		{nil, "tx must not be nil"},
		{(*sql.Tx)(nil), "tx must not be nil"},
	} {
		_, err := q.SendTx(w.Soon(), refused.tx, testdb.Texts("x")...)
		require.EqualError(w, err, "chanq: send: "+refused.why)
		require.EqualError(w, l.AckTx(w.Soon(), refused.tx), "chanq: ack: "+refused.why)
		require.EqualError(w, chanq.AckTx(w.Soon(), refused.tx, l), "chanq: ack: "+refused.why)
		_, err = q.CancelTx(w.Soon(), refused.tx, id)
		require.EqualError(w, err, "chanq: cancel: "+refused.why)
	}
	require.Equal(w, before, faults.Ops())
	require.NoError(w, l.Ack())
}
