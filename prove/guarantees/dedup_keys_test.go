package guarantees

import (
	"database/sql"
	"strings"
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

var dedupKeys = []test{
	{"ADedupKeyIsHeldFromTheSendToTheAck", dedupKey},
	{"ADedupKeyIsHeldWithinABatchAndAcrossProducers", dedupTogether},
	{"ADedupKeyThatBecomesFreeDuringTheSendIsReportedCorrectly", dedupRace},
	{"ASendWhoseDuplicateIsGoneIsRepeated", duplicateThatPasses},
	{"AMessageWhoseDedupKeyIsAlwaysRejectedFailsAlone", undecidedKey},
	{"TwoTransactionsOfOneKeyWaitForEachOtherOnly", dedupInTransactions},
}

func dedupKey(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	key := `{"\, ` + strings.Repeat("k", 100)
	m := chanq.Message[string]{DedupKey: key, Delay: slowness * 100 * time.Millisecond}
	first, err := p.Send(w.Soon(), m)
	require.NoError(w, err)
	require.False(w, first.Duplicate)
	duplicate := chanq.Receipt{ID: first.ID, Duplicate: true}
	again := func(state string) {
		r, err := p.Send(w.Soon(), m)
		require.NoError(w, err)
		require.Equal(w, duplicate, r, state)
	}
	again("scheduled")
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	require.Equal(w, key, l.DedupKey)
	again("leased")
	require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
	again("ready")
	l = testdb.Lease(w, q, 1, time.Minute)[0]
	require.NoError(w, l.Ack())
	r, err := p.Send(w.Soon(), m)
	require.NoError(w, err)
	require.False(w, r.Duplicate, "after the ack the key is free")
	require.NotEqual(w, first.ID, r.ID)
	require.NoError(w, testdb.Lease(w, q, 1, time.Minute)[0].Nack(chanq.DeadLetter(nil)))
	r, err = p.Send(w.Soon(), m)
	require.NoError(w, err)
	require.False(w, r.Duplicate, "dead messages do not hold keys")
}

func dedupTogether(w *world) {
	q := w.Queue("work", chanq.Config{})
	keyed := func(key string) chanq.Message[string] { return chanq.Message[string]{Body: key, DedupKey: key} }
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	receipts, err := p.SendBatch(w.Soon(), keyed("a"), keyed("b"), keyed("a"), chanq.Message[string]{}, keyed("A"))
	require.NoError(w, err)
	var duplicates []bool
	for _, r := range receipts {
		duplicates = append(duplicates, r.Duplicate)
	}
	require.Equal(w, []bool{false, false, true, false, false}, duplicates, "keys are compared by their bytes")
	require.Equal(w, receipts[0].ID, receipts[2].ID)
	require.Equal(w, 4, testdb.Stats(w, q).Ready)

	var stored atomic.Int32
	var senders sync.WaitGroup
	for range 4 {
		p := testdb.Produce(w, q, chanq.ProducerConfig{InFlight: 2})
		for range 4 {
			senders.Go(func() {
				for _, key := range []string{"x", "y", "z"} {
					r, err := p.Send(w.Soon(), keyed(key))
					if err != nil {
						w.Errorf("send: %v", err)
					} else if !r.Duplicate {
						stored.Add(1)
					}
				}
			})
		}
	}
	senders.Wait()
	require.EqualValues(w, 3, stored.Load())
	require.Equal(w, 7, testdb.Stats(w, q).Ready)
}

// dedupRace has the message that holds a key leave the queue between the statements of a send.
func dedupRace(w *world) {
	q := w.Queue("work", chanq.Config{})
	_, db := w.Connect()
	other := testdb.OpenOn[string](w, db, "work", chanq.Config{})
	held := testdb.Send(w, q,
		chanq.Message[string]{Body: "goes first", DedupKey: "first"},
		chanq.Message[string]{Body: "goes second", DedupKey: "second"})
	st := w.Statements("work")
	rolledBack := w.Failure(sqlbatch.RolledBack)
	finds, news := 0, 0
	gate, reached := make(chan struct{}), make(chan struct{})
	gate2, reached2 := make(chan struct{}), make(chan struct{})
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case testdb.Runs(op, st.Find(nil, nil)):
			if finds++; finds == 1 {
				close(reached)
				return faultdb.Hold(gate)
			}
		case newRows(op, st):
			switch news++; news {
			case 2:
				return faultdb.Fail(rolledBack)
			case 3:
				close(reached2)
				return faultdb.Hold(gate2)
			}
		}
		return faultdb.Fault{}
	})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	done := make(chan []chanq.Receipt, 1)
	go func() {
		receipts, err := p.SendBatch(w.Soon(), chanq.Message[string]{DedupKey: "first"}, chanq.Message[string]{DedupKey: "second"})
		if err != nil {
			w.Errorf("send: %v", err)
		}
		done <- receipts
	}()
	leave := func(reached, gate chan struct{}, id chanq.ID) {
		select {
		case <-reached:
			_, err := other.Cancel(w.Soon(), id)
			require.NoError(w, err)
		case <-time.After(testdb.Patience):
			require.Fail(w, "the send did not reach this statement")
		}
		close(gate)
	}
	leave(reached, gate, held[0])
	leave(reached2, gate2, held[1])
	receipts := <-done
	require.False(w, receipts[0].Duplicate)
	require.False(w, receipts[1].Duplicate, "only the failed attempt found a duplicate")
	require.Equal(w, chanqadmin.StateReady, testdb.Get(w, q, receipts[0].ID).State)
	require.Equal(w, chanqadmin.StateReady, testdb.Get(w, q, receipts[1].ID).State)
	require.Equal(w, 2, testdb.Stats(w, q).Ready)
}

// newRows reports whether op is the INSERT of one or two rows that skips existing ones.
func newRows(op faultdb.Op, q sqlbatch.Queue) bool {
	return op.Kind == faultdb.Query && (testdb.RunsStore(op, 1, q.EnqueueNew) || testdb.RunsStore(op, 2, q.EnqueueNew))
}

// duplicateThatPasses makes an INSERT fail as if another session had stored the key after the
// check: with an error that leaves the transaction usable.
func duplicateThatPasses(w *world) {
	q := w.Queue("work", chanq.Config{})
	duplicate := w.Failure(sqlbatch.Duplicate)
	twice := func() {
		n := 0
		alone, within := w.Statements("work"), w.Statements("work").InTx()
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if newRows(op, alone) || newRows(op, within) {
				if n++; n <= 2 {
					return faultdb.Fail(duplicate)
				}
			}
			return faultdb.Fault{}
		})
	}
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	twice()
	r, err := p.Send(w.Soon(), chanq.Message[string]{DedupKey: "a"})
	require.NoError(w, err)
	require.False(w, r.Duplicate)
	w.requireState(q, r.ID, chanqadmin.StateReady)

	tx := w.begin(w.DB)
	twice()
	receipts, err := q.SendTx(w.Soon(), tx, chanq.Message[string]{DedupKey: "a"}, chanq.Message[string]{DedupKey: "b"})
	require.NoError(w, err)
	require.NoError(w, tx.Commit())
	require.Equal(w, chanq.Receipt{ID: r.ID, Duplicate: true}, receipts[0])
	require.False(w, receipts[1].Duplicate)
	w.requireState(q, receipts[1].ID, chanqadmin.StateReady)
	require.Equal(w, 2, testdb.Stats(w, q).Ready)
}

// undecidedKey has the database always reject a key as a duplicate, although no message has that
// key.
func undecidedKey(w *world) {
	q := w.Queue("work", chanq.Config{})
	duplicate := w.Failure(sqlbatch.Duplicate)
	var tries atomic.Int32
	alone, within := w.Statements("work"), w.Statements("work").InTx()
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if newRows(op, alone) || newRows(op, within) {
			tries.Add(1)
			return faultdb.Fail(duplicate)
		}
		return faultdb.Fault{}
	})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	receipts, err := p.SendBatch(w.Soon(), chanq.Message[string]{Body: "stuck", DedupKey: "odd"}, chanq.Message[string]{Body: "fine"})
	var batch *chanq.BatchError
	require.ErrorAs(w, err, &batch)
	require.ErrorContains(w, batch.Errs[0], `dedup key "odd"`)
	var op *chanq.OpError
	require.ErrorAs(w, batch.Errs[0], &op)
	require.False(w, op.Unknown, "it is not stored")
	require.NoError(w, batch.Errs[1], "the other message of the batch is stored")
	w.requireState(q, receipts[1].ID, chanqadmin.StateReady)
	require.LessOrEqual(w, tries.Load(), int32(30))
	_, err = p.Send(w.Soon(), chanq.Message[string]{Body: "later"})
	require.NoError(w, err, "later sends succeed")

	tx := w.begin(w.DB)
	_, err = q.SendTx(w.Soon(), tx, chanq.Message[string]{DedupKey: "odd"})
	require.ErrorContains(w, err, `dedup key "odd"`)
	require.NoError(w, tx.Rollback())
}

// dedupInTransactions sends one key in two concurrent transactions. Only the second send waits for
// the first; its transaction stays usable, and its receipt names the message that has the key.
func dedupInTransactions(w *world) {
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("one writer: there are no concurrent transactions")
	}
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	begin := func() *sql.Tx {
		tx := w.begin(w.DB)
		return tx
	}
	first, second := begin(), begin()
	held, err := q.SendTx(w.Soon(), first, chanq.Message[string]{DedupKey: "k"})
	require.NoError(w, err)
	other, err := p.Send(w.Soon(), chanq.Message[string]{DedupKey: "j"})
	require.NoError(w, err, "a send with another key does not wait")
	require.False(w, other.Duplicate)

	type result struct {
		receipts []chanq.Receipt
		err      error
	}
	done := make(chan result, 1)
	go func() {
		receipts, err := q.SendTx(w.Soon(), second, chanq.Message[string]{DedupKey: "i"}, chanq.Message[string]{DedupKey: "k"})
		done <- result{receipts, err}
	}()
	select {
	case r := <-done:
		require.Fail(w, "the same key did not wait", "%v", r)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(w, first.Commit())
	r := <-done
	require.NoError(w, r.err)
	require.Equal(w, chanq.Receipt{ID: held[0].ID, Duplicate: true}, r.receipts[1])
	require.NoError(w, second.Commit())
	w.requireState(q, r.receipts[0].ID, chanqadmin.StateReady)
	require.Equal(w, 3, testdb.Stats(w, q).Ready)
}
