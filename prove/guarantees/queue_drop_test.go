package guarantees

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Lists of queues, and dropping a queue.
var queueDrop = []test{
	{"QueuesListsThoseThatWereMigratedAndNotDropped", listsQueues},
	{"DropRefusesAQueueWithAMessageInAnyState", dropRefuses},
	{"DropWaitsForAnOpenSendTx", dropWaits},
	{"AConsumerOfADroppedQueueStopsWithAnError", dropUnderConsumer},
	{"AConsumerWithoutSlotsOfADroppedQueueStopsWithAnError", dropUnderSpare},
	{"G08_CancelTxCancelsWithTheCallersTransactionOrNotAtAll", cancelTx},
	{"PurgeIDsDeletesTheDeadMessagesThatItNames", purgeIDs},
}

func listsQueues(w *world) {
	db := w.Open()
	names, err := chanqadmin.Queues(w.Soon(), db, chanq.Config{})
	require.NoError(w, err)
	require.Empty(w, names, "no queue was ever created")
	w.Queue("work", chanq.Config{})
	w.Queue("a_ledger", chanq.Config{})
	names, err = chanqadmin.Queues(w.Soon(), db, chanq.Config{})
	require.NoError(w, err)
	require.Equal(w, []string{"a_ledger", "work"}, names)
	require.NoError(w, chanqadmin.Drop(w.Soon(), w.Tables(), "work", chanq.Config{}, chanqadmin.Change{}))
	names, err = chanqadmin.Queues(w.Soon(), db, chanq.Config{})
	require.NoError(w, err)
	require.Equal(w, []string{"a_ledger"}, names)
	require.ErrorIs(w, chanqadmin.Drop(w.Soon(), w.Tables(), "work", chanq.Config{}, chanqadmin.Change{}), chanq.ErrNoSchema)
	_, err = chanq.Open[string](w.Soon(), db, "work", chanq.Config{})
	require.ErrorIs(w, err, chanq.ErrNoSchema)
	require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, w.Queue("work", chanq.Config{})), "the queue can be created again")
}

func dropRefuses(w *world) {
	other := w.Queue("works", chanq.Config{})
	kept := testdb.Send(w, other, testdb.Texts("kept")...)[0]
	for _, s := range states {
		q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: time.Hour}})
		id := oneOfEach(w, q)[s]
		for _, another := range states {
			if another != s {
				w.purge(q, another)
			}
		}
		require.ErrorIs(w, chanqadmin.Drop(w.Soon(), w.Tables(), "work", chanq.Config{}, chanqadmin.Change{}), chanq.ErrNotEmpty, s)
		w.requireState(q, id, s, "the message is unchanged")
		require.NoError(w, chanqadmin.DropWithMessages(w.Soon(), w.Tables(), "work", chanq.Config{}, chanqadmin.Change{}), s)
	}
	w.requireState(other, kept, chanqadmin.StateReady)
}

func dropWaits(w *world) {
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("one writer: there are no concurrent transactions")
	}
	q := w.Queue("work", chanq.Config{})
	tx := w.begin(w.DB)
	receipts, err := q.SendTx(w.Soon(), tx, testdb.Texts("a")...)
	require.NoError(w, err)
	lock := w.Statements("work").InTx().Lock()
	began := make(chan struct{})
	faults, tables := w.ConnectTables()
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if testdb.Runs(op, lock) {
			close(began)
		}
		return faultdb.Fault{}
	})
	dropped := make(chan error, 1)
	go func() { dropped <- chanqadmin.Drop(w.Soon(), tables, "work", chanq.Config{}, chanqadmin.Change{}) }()
	w.within("the drop requests the tables", began)
	select {
	case err := <-dropped:
		require.Fail(w, "it did not wait", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(w, tx.Commit())
	require.ErrorIs(w, <-dropped, chanq.ErrNotEmpty)
	w.requireState(q, receipts[0].ID, chanqadmin.StateReady)
}

func dropUnderSpare(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 1}})
	owner := testdb.Start(w, q, chanq.ConsumerConfig{})
	testdb.Eventually(w, "the consumer has the slot", func() bool { return owner.Stats().Slots == 1 })
	spare := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 3 * time.Second})
	pass(4 * time.Second)
	require.NoError(w, chanqadmin.Drop(w.Soon(), w.DB, "work", chanq.Config{}, chanqadmin.Change{}))
	for _, c := range []*chanq.Consumer[string]{owner, spare} {
		w.within("it ends", c.Done())
		require.ErrorIs(w, c.Err(), chanq.ErrNoSchema)
	}
}

func dropUnderConsumer(w *world) {
	q := w.Queue("work", chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 10 * time.Millisecond})
	w.Eventually("the consumer polls", func() bool { return c.Stats().EmptyClaims > 0 })
	require.NoError(w, chanqadmin.Drop(w.Soon(), w.Tables(), "work", chanq.Config{}, chanqadmin.Change{}))
	w.within("the consumer ends", c.Done())
	require.ErrorIs(w, c.Err(), chanq.ErrNoSchema)
}

func cancelTx(w *world) {
	q := w.Queue("work", chanq.Config{})
	sent := testdb.Send(w, q, testdb.Texts("a", "b", "kept")...)
	l := testdb.Lease(w, q, 1, time.Hour)[0]
	for _, commit := range []bool{false, true} {
		tx := w.begin(w.DB)
		found, err := q.CancelTx(w.Soon(), tx, sent[0], sent[1], chanq.NewID())
		require.NoError(w, err)
		require.ElementsMatch(w, sent[:2], found)
		if !commit {
			require.NoError(w, tx.Rollback())
			require.Equal(w, chanqadmin.Stats{Ready: 2, Leased: 1}, testdb.Counted(w, q))
			continue
		}
		require.NoError(w, tx.Commit())
	}
	require.Equal(w, chanqadmin.Stats{Ready: 1}, testdb.Counted(w, q))
	require.ErrorIs(w, l.Ack(), chanq.ErrLeaseLost)
	_, err := q.CancelTx(w.Soon(), nil, sent...)
	require.ErrorContains(w, err, "tx must not be nil")
	ctx, cancel := context.WithCancel(w.Soon())
	tx := w.begin(w.DB)
	defer tx.Rollback()
	cancel()
	_, err = q.CancelTx(ctx, tx, sent[2])
	var op *chanq.OpError
	require.True(w, errors.As(err, &op) && !op.Unknown, "nothing is visible before the commit: %v", err)
}

func purgeIDs(w *world) {
	q := w.Queue("work", chanq.Config{})
	dead := kill(w, q, testdb.Texts("a", "b", "c")...)
	live := testdb.Send(w, q, testdb.Texts("live")...)
	found, err := testdb.PurgeIDs(w.Soon(), q, dead[0], dead[2], live[0], chanq.NewID())
	require.NoError(w, err)
	require.ElementsMatch(w, []chanq.ID{dead[0], dead[2]}, found)
	require.Equal(w, chanqadmin.Stats{Ready: 1, Dead: 1}, testdb.Counted(w, q))
	w.requireState(q, dead[1], chanqadmin.StateDead)
}
