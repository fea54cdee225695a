package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var transacting = []test{
	{"G08_SendTxStoresWithTheCallersTransactionOrNotAtAll", sendTx},
	{"G08_SendTxRefusesATransactionOfAnotherDatabase", sendTxElsewhere},
	{"AckTxCommitsOrRollsBackWithTheCaller", ackTx},
	{"AFailureInTheCallersTransactionIsNotUnknown", failureInTx},
	{"SettleAfterAckTxFollowsTheTransaction", settleAfterAckTx},
	{"ALeaseOfAckTxIsNotExtended", ackTxStopsExtension},
	{"G08_AckTxOfManyLeasesIsOneStatementForAll", ackTxOfMany},
	{"G08_AckTxOfManyLeasesNamesThoseThatWereLost", ackTxOfLost},
	{"AckTxOfLeasesKnownToBeLostRunsNoStatement", ackTxKnownLost},
	{"AckTxOfOneReportsALossAsAckTxOfManyDoes", ackTxOneLost},
	{"AnAckTxCountsAtTheCallOrAtTheCommitOfInTx", ackTxCounts},
	{"AnAckTxThatFindsItsMessageGoneCountsNothing", ackTxFindsNothing},
	{"ACommitThatHangsReturnsWhenTheContextOfItsLeaseIsCancelled", commitHangs},
	{"ASendTxCountsAtTheCallOrAtTheCommitOfInTx", sendTxCounts},
}

// sendTxElsewhere: the other database has a queue of the same name, as that of another tenant has.
func sendTxElsewhere(w *world) {
	for name, spec := range map[string]chanq.Spec{"work": {}, "line": {Kind: chanq.KindOrdered, Slots: 4}} {
		q := w.Queue(name, chanq.Config{Spec: spec})
		time.Sleep(2 * time.Millisecond) // databases of one name are distinguished by when their queues were created
		other := testdb.New(w.T, w.Engine)
		theirs := other.Queue(name, chanq.Config{Spec: spec})
		for _, m := range []chanq.Message[string]{{Body: "plain"}, {Body: "keyed", DedupKey: "k"}} {
			err := chanq.InTx(w.Soon(), other.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.SendTx(ctx, tx, m)
				require.ErrorContains(w, err, "send "+name+": tx is a transaction of another database")
				return nil
			})
			require.NoError(w, err, "the transaction goes on")
			tx := w.begin(other.DB)
			_, err = q.SendTx(w.Soon(), wrapped{tx}, m)
			require.ErrorContains(w, err, "another database")
			require.NoError(w, tx.Commit())
		}
		require.Zero(w, testdb.Stats(other, theirs).Ready)
		again := testdb.OpenOn[string](w, w.DB, name, chanq.Config{})
		tx := w.begin(w.DB)
		w.sendTx(again, tx, chanq.Msg("here"))
		require.NoError(w, tx.Commit())
		require.Equal(w, 1, testdb.Stats(w, q).Ready)
	}
}

func ackTxCounts(w *world) {
	for kind, cfg := range idleKinds {
		var acked, attempted atomic.Int64
		cfg.Hooks.Settled = func(e chanq.SettledEvent) {
			acked.Add(int64(e.Acked))
			attempted.Add(int64(e.Attempted))
		}
		q := w.Queue(kind, cfg)
		w.sendApart(q, numbers(4)...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		leases := testdb.Take(w, c, 4)
		counted := func() [3]int64 { return [3]int64{acked.Load(), c.Stats().Acked, attempted.Load()} }
		in := func(end func(*sql.Tx) error, leases ...*chanq.Lease[string]) {
			tx := w.begin(w.DB)
			before := attempted.Load()
			require.NoError(w, chanq.AckTx(w.Soon(), tx, leases...))
			require.EqualValues(w, len(leases), attempted.Load()-before, "at the call")
			require.NoError(w, end(tx))
		}
		in((*sql.Tx).Commit, leases[:2]...)
		in((*sql.Tx).Rollback, leases[2])
		require.Equal(w, [3]int64{0, 0, 3}, counted(), kind)
		w.ack(leases[2])
		w.Eventually("the ack counts", func() bool { return counted() == [3]int64{1, 1, 3} })
		refused := errors.New("no")
		for _, end := range []error{refused, nil} {
			require.Equal(w, end, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(w, leases[3].AckTx(ctx, tx))
				require.Equal(w, [3]int64{1, 1, 3}, counted(), "before the commit of InTx, and after its rollback")
				return end
			}))
		}
		require.NoError(w, c.Shutdown(w.Soon()))
		require.Equal(w, [3]int64{2, 2, 3}, counted(), kind)
	}
}

// commitHangs makes the commit of a handler hang, before it is applied or after. In the second case the consumer might see the commit.
func commitHangs(w *world) {
	for name, hangs := range map[string]faultdb.Fault{"before": faultdb.Hang(), "applied": faultdb.Hang().Applied()} {
		q := w.Queue(name, chanq.Config{})
		testdb.Send(w, q, testdb.Texts("a")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: slowness * 3 * time.Second})
		returned := make(chan error, 2)
		ended := make(chan error, 1)
		go func() {
			ended <- c.Handle(1, func(ctx context.Context, l *chanq.Lease[string]) error {
				err := chanq.InTx(ctx, w.DB, func(ctx context.Context, tx *sql.Tx) error {
					w.Strike(hangs, func(op faultdb.Op) bool { return op.Kind == faultdb.Commit })
					return l.AckTx(ctx, tx)
				})
				w.Heal()
				returned <- err
				c.Stop()
				return err
			})
		}()
		var op *chanq.OpError
		require.ErrorAs(w, testdb.Receive(w, returned, "the handler returns"), &op, name)
		require.True(w, op.Unknown, name)
		require.NoError(w, <-ended, name)
	}
}

func sendTxCounts(w *world) {
	var sent []chanq.SentEvent
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Sent: func(e chanq.SentEvent) {
		e.Took = 0
		sent = append(sent, e)
	}}})
	ms := []chanq.Message[string]{{Body: "a", DedupKey: "k"}, {Body: "b", DedupKey: "k"}, {Body: "c"}}
	tx := w.begin(w.DB)
	w.sendTx(q, tx, ms...)
	require.Equal(w, []chanq.SentEvent{{Queue: "work", Attempted: 2}}, sent)
	require.NoError(w, tx.Rollback())
	failed := errors.New("failed")
	for _, end := range []error{failed, nil} {
		sent = nil
		require.ErrorIs(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			for range 2 {
				_, err := q.SendTx(ctx, tx, ms...)
				require.NoError(w, err)
			}
			require.Empty(w, sent)
			return end
		}), end)
		if end != nil {
			require.Empty(w, sent)
		}
	}
	require.Equal(w, []chanq.SentEvent{{Queue: "work", Messages: 3, Duplicates: 3, Bytes: 6}}, sent)
}

func sendTx(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, chanq.Message[string]{Body: "first", DedupKey: "taken"})
	for _, commit := range []bool{false, true} {
		tx := w.begin(w.DB)
		receipts, err := q.SendTx(w.Soon(), tx,
			chanq.Message[string]{Body: "a"},
			chanq.Message[string]{Body: "b", DedupKey: "taken"},
			chanq.Message[string]{Body: "c", DedupKey: "free"},
			chanq.Message[string]{Body: "d", DedupKey: "free"},
			chanq.Message[string]{Body: "e"})
		require.NoError(w, err)
		duplicates := []bool{false, true, false, true, false}
		for i, r := range receipts {
			require.Equal(w, duplicates[i], r.Duplicate, i)
			require.False(w, r.ID.IsZero())
		}
		require.Equal(w, receipts[2].ID, receipts[3].ID)
		if !commit {
			require.NoError(w, tx.Rollback())
			require.Equal(w, chanqadmin.Stats{Ready: 1}, testdb.Counted(w, q))
			continue
		}
		require.NoError(w, tx.Commit())
		require.Equal(w, []string{"first", "a", "c", "e"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, q, 4, time.Minute))))
	}
	_, err := q.SendTx(w.Soon(), nil, testdb.Texts("x")...)
	require.ErrorContains(w, err, "tx must not be nil")
	tx := w.begin(w.DB)
	defer tx.Rollback()
	_, err = q.SendTx(w.Soon(), tx, chanq.Message[string]{Body: "fine"}, chanq.Message[string]{Priority: 9})
	require.ErrorContains(w, err, "Message.Priority")
	receipts, err := q.SendTx(w.Soon(), tx)
	require.NoError(w, err)
	require.Empty(w, receipts)
	fewest := func(ctx context.Context, tx *sql.Tx) int {
		least := math.MaxInt
		for range 3 { // the count includes what other goroutines of the queue run
			before := w.Faults.Ops()
			receipts, err := q.SendTx(ctx, tx, testdb.Texts(make([]string, 501)...)...)
			least = min(least, w.Faults.Ops()-before)
			require.NoError(w, err)
			require.Len(w, receipts, 501)
		}
		return least
	}
	require.LessOrEqual(w, fewest(w.Soon(), tx), 6, "two statements and the check of the database, whose rows might have to be read")
	require.NoError(w, tx.Commit())
	require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
		require.LessOrEqual(w, fewest(ctx, tx), 4, "two statements, whose rows might have to be read")
		return nil
	}))
	require.Equal(w, 6*501, testdb.Counted(w, q).Ready)
}

func ackTx(w *world) {
	for _, cfg := range []chanq.Config{{}, {Spec: chanq.Spec{Retain: time.Hour}}} {
		q := w.Queue("work", cfg)
		ledger := w.Queue("ledger", chanq.Config{})
		id := testdb.Send(w, q, testdb.Texts("a")...)[0]
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		l := testdb.Take(w, c, 1)[0]

		tx := w.begin(w.DB)
		require.NoError(w, l.AckTx(w.Soon(), tx))
		w.sendTx(ledger, tx, testdb.Texts("not booked")...)
		require.NoError(w, tx.Rollback())
		w.requireState(q, id, chanqadmin.StateLeased)
		require.Zero(w, testdb.Stats(w, ledger).Ready)

		tx = w.begin(w.DB)
		require.NoError(w, l.AckTx(w.Soon(), tx), "after a rollback AckTx can be repeated")
		w.sendTx(ledger, tx, testdb.Texts("booked")...)
		require.NoError(w, tx.Commit())
		if cfg.Retain > 0 {
			w.requireState(q, id, chanqadmin.StateDone)
		} else {
			w.requireState(q, id, "")
		}
		booked := testdb.Lease(w, ledger, 1, time.Minute)[0]
		require.Equal(w, "booked", booked.Body)
		require.NoError(w, booked.Ack())
		require.NoError(w, c.Shutdown(w.Soon()), "no lease is held")
	}
}

// settleAfterAckTx: a loop over a channel settles by the error of its function, and some of its functions ack in a transaction.
func settleAfterAckTx(w *world) {
	refused := errors.New("refused")
	for name, spec := range map[string]chanq.Spec{"work": {}, "line": {Kind: chanq.KindOrdered}} {
		q := w.Queue(name, chanq.Config{Spec: spec})
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 10 * time.Minute, Backoff: func(*chanq.Delivery, error) time.Duration { return 0 }})
		work := map[string]func(l *chanq.Lease[string]) error{
			"InTx": func(l *chanq.Lease[string]) error {
				return chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error { return l.AckTx(ctx, tx) })
			},
			"InTx refused": func(l *chanq.Lease[string]) error {
				return chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
					return errors.Join(l.AckTx(ctx, tx), refused)
				})
			},
			"BeginTx": func(l *chanq.Lease[string]) error {
				tx := w.begin(w.DB)
				return errors.Join(l.AckTx(w.Soon(), tx), tx.Commit())
			},
			"BeginTx refused": func(l *chanq.Lease[string]) error {
				tx := w.begin(w.DB)
				return errors.Join(l.AckTx(w.Soon(), tx), tx.Rollback(), refused)
			},
		}
		for name, do := range work {
			m := chanq.Message[string]{Body: name}
			if spec.Kind == chanq.KindOrdered {
				m.Key = "k"
			}
			testdb.Send(w, q, m)
			l := testdb.Take(w, c, 1)[0]
			err := do(l)
			require.NoError(w, l.Settle(err), name)
			if err == nil {
				require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q), name)
				continue
			}
			require.ErrorIs(w, err, refused, name)
			again := testdb.Take(w, c, 1)[0]
			require.Equal(w, 2, again.Attempt, name)
			require.NoError(w, again.Settle(nil))
			require.NoError(w, again.Wait(w.Soon()))
		}
		require.NoError(w, c.Shutdown(w.Soon()), "no lease is held")
	}
}

func ackTxStopsExtension(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 2 * steadyLease})
	l := testdb.Take(w, c, 1)[0]
	tx := w.begin(w.DB)
	require.NoError(w, l.AckTx(w.Soon(), tx))
	require.NoError(w, tx.Rollback())
	again := testdb.Take(w, c, 1)[0]
	require.Equal(w, 2, again.Attempt, "the lease has expired")
	require.NoError(w, l.Ack(), "after a rollback the lease can be settled")
	require.ErrorIs(w, l.Wait(w.Soon()), chanq.ErrLeaseLost, "too late")
	require.NoError(w, again.Ack())
}

func ackTxFindsNothing(w *world) {
	var attempted atomic.Int64
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Settled: func(e chanq.SettledEvent) { attempted.Add(int64(e.Attempted)) }}})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	l := testdb.Take(w, c, 1)[0]
	w.Exec("DELETE FROM chanq_work")
	tx := w.begin(w.DB)
	require.ErrorIs(w, l.AckTx(w.Soon(), tx), chanq.ErrLeaseLost)
	require.ErrorIs(w, l.Wait(w.Soon()), chanq.ErrLeaseLost)
	require.NoError(w, tx.Rollback())
	require.Zero(w, c.Stats().Acked)
	require.Zero(w, attempted.Load())
}

// acksTx reports whether op is the ack of AckTx in a caller's transaction.
func (w *world) acksTx(op faultdb.Op, queue string, cfg chanq.Config) bool {
	st := w.Statements(queue).InTx()
	if cfg.Retain > 0 {
		return testdb.Runs(op, st.Archive(nil))
	}
	return testdb.Runs(op, st.Ack(nil))
}

func ackTxOfMany(w *world) {
	for name, cfg := range map[string]chanq.Config{"work": {}, "kept": {Spec: chanq.Spec{Retain: time.Hour}}} {
		q := w.Queue(name, cfg)
		const n = 300
		testdb.Send(w, q, testdb.Texts(make([]string, n)...)...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		leases := testdb.Take(w, c, n)
		slices.Reverse(leases)
		var mu sync.Mutex
		var ran []string // arguments of each statement
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if w.acksTx(op, name, cfg) {
				mu.Lock()
				defer mu.Unlock()
				var values []any
				for _, arg := range op.Args {
					values = append(values, arg.Value)
				}
				ran = append(ran, fmt.Sprint(values))
			}
			return faultdb.Fault{}
		})
		// Rows are written in the order of their IDs, as by all other statements. Two statements that lock rows in different orders could
		// deadlock.
		var inOrder []sqlbatch.Item
		fences := map[chanq.ID]int64{}
		for _, l := range leases {
			fences[l.ID] = l.Fence
		}
		for _, id := range testdb.IDs(leases) {
			inOrder = append(inOrder, sqlbatch.Item{ID: id, Fence: fences[id]})
		}
		st := w.Statements(name).InTx().Ack(inOrder)
		if cfg.Retain > 0 {
			st = w.Statements(name).InTx().Archive(inOrder)
		}
		var want []any
		for _, arg := range st.Args {
			if named, ok := arg.(sql.NamedArg); ok {
				arg = named.Value
			}
			want = append(want, arg)
		}
		for _, commit := range []bool{false, true} {
			tx := w.begin(w.DB)
			require.NoError(w, chanq.AckTx(w.Soon(), tx, leases...))
			mu.Lock()
			require.Equal(w, []string{fmt.Sprint(want)}, ran, name)
			ran = nil
			mu.Unlock()
			if !commit {
				require.NoError(w, tx.Rollback())
				require.Equal(w, chanqadmin.Stats{Leased: n}, testdb.Counted(w, q), "after a rollback AckTx can be repeated")
				continue
			}
			require.NoError(w, tx.Commit())
			gone := chanqadmin.Stats{}
			if cfg.Retain > 0 {
				gone.Done = n
			}
			require.Equal(w, gone, testdb.Counted(w, q))
		}
		w.Faults.Inject(nil)
		require.NoError(w, c.Shutdown(w.Soon()), "no lease is held")
	}
}

func ackTxOfLost(w *world) {
	for name, cfg := range map[string]chanq.Config{"work": {}, "kept": {Spec: chanq.Spec{Retain: time.Hour}}} {
		q := w.Queue(name, cfg)
		testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
		former := testdb.Lease(w, q, 1, formerLease)[0]
		holder := testdb.Lease(w, q, 3, time.Minute)
		var theirs *chanq.Lease[string]
		var ours []*chanq.Lease[string]
		for _, l := range holder {
			if l.ID == former.ID {
				theirs = l.Lease
			} else {
				ours = append(ours, l.Lease)
			}
		}
		tx := w.begin(w.DB)
		err := chanq.AckTx(w.Soon(), tx, ours[0], former.Lease, ours[1])
		require.NoError(w, tx.Rollback())
		require.ErrorIs(w, err, chanq.ErrLeaseLost)
		var batch *chanq.BatchError
		require.ErrorAs(w, err, &batch)
		require.Len(w, batch.Errs, 3)
		require.NoError(w, batch.Errs[0])
		require.ErrorIs(w, batch.Errs[1], chanq.ErrLeaseLost)
		require.NoError(w, batch.Errs[2])
		require.EqualError(w, err, "chanq: ack: 1 of 3 failed; first: ack "+name+" "+former.ID.String()+": lease lost")
		require.Equal(w, chanqadmin.Stats{Leased: 3}, testdb.Counted(w, q), "all or nothing")
		require.ErrorIs(w, former.Wait(w.Soon()), chanq.ErrLeaseLost, "the loss is known")
		for _, l := range append(ours, theirs) {
			require.NoError(w, l.Ack(), "the other leases can be settled")
		}
	}
}

func ackTxOneLost(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	former := testdb.Lease(w, q, 1, formerLease)[0]
	w.Hold(q.Name(), 1, time.Minute)
	tx := w.begin(w.DB)
	defer tx.Rollback()
	want := chanq.OpError{Op: "ack", Queue: "work", ID: id, Err: chanq.ErrLeaseLost}
	var one, of *chanq.OpError
	require.ErrorAs(w, former.AckTx(w.Soon(), tx), &one)
	require.Equal(w, want, *one)
	require.ErrorAs(w, chanq.AckTx(w.Soon(), tx, former.Lease), &of)
	require.Equal(w, want, *of)
}

func ackTxKnownLost(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	leases := testdb.Leases(testdb.Lease(w, q, 2, time.Minute))
	require.NoError(w, leases[1].Ack())
	other := w.Queue("other", chanq.Config{})
	testdb.Send(w, other, testdb.Texts("x")...)
	foreign := testdb.Lease(w, other, 1, time.Minute)[0]

	tx := w.begin(w.DB)
	defer tx.Rollback()
	before := w.Faults.Ops()
	err := chanq.AckTx(w.Soon(), tx, leases...)
	require.ErrorIs(w, err, chanq.ErrSettled)
	var batch *chanq.BatchError
	require.ErrorAs(w, err, &batch)
	require.NoError(w, batch.Errs[0])
	require.ErrorContains(w, chanq.AckTx(w.Soon(), tx, leases[0], foreign.Lease), "two queues, work and other")
	require.ErrorContains(w, chanq.AckTx(w.Soon(), tx, leases[0], nil), "lease 1 is nil")
	require.ErrorContains(w, chanq.AckTx(w.Soon(), nil, leases[0]), "tx must not be nil")
	require.NoError(w, chanq.AckTx[string](w.Soon(), tx))
	require.Equal(w, before, w.Faults.Ops())

	require.NoError(w, chanq.AckTx(w.Soon(), tx, leases[0], leases[0]), "a lease that is named twice is acked once")
	require.NoError(w, tx.Commit())
	w.requireState(q, leases[0].ID, "")
}

func failureInTx(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	leases := testdb.Leases(testdb.Lease(w, q, 2, time.Minute))
	faults, db := w.Connect() // which no consumer uses
	for what, do := range map[string]func(tx *sql.Tx) error{
		"SendTx":      func(tx *sql.Tx) error { _, err := q.SendTx(w.Soon(), tx, testdb.Texts("c")...); return err },
		"Lease.AckTx": func(tx *sql.Tx) error { return leases[0].AckTx(w.Soon(), tx) },
		"AckTx":       func(tx *sql.Tx) error { return chanq.AckTx(w.Soon(), tx, leases...) },
	} {
		tx := w.begin(db)
		hit := testdb.NewStrike(w.Broken(false), func(op faultdb.Op) bool { return op.Kind == faultdb.Exec || op.Kind == faultdb.Query })
		faults.Inject(hit.Choose)
		err := do(tx)
		require.NotEmpty(w, hit.Struck(), what)
		faults.Inject(nil)
		_ = tx.Rollback()                          // its connection is broken
		for _, err := range []error{err, do(tx)} { // the second time in a transaction that has ended
			var op *chanq.OpError
			require.ErrorAs(w, err, &op, what)
			require.False(w, op.Unknown, "%s: %v", what, err)
		}
	}
	for _, l := range leases {
		require.NoError(w, l.Ack(), "the leases can be settled after the rollback")
	}
}
