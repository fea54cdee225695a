package guarantees

import (
	"cmp"
	"database/sql"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

var queueEmpty = []test{
	{"EmptyIsFalseWithOneReadyScheduledOrLeasedMessage", emptyOfStates},
	{"EmptyIsFalseUntilTheAckOrCancelOfTheOnlyMessageIsCommitted", emptyBesideEnds},
	{"EmptyIsFalseAfterTheCommitOfASend", emptyBesideSends},
	{"EmptyIsNeverTrueWhileEachAckCommitsWithTheNextSend", emptyOfRelay},
}

// requireEmpty waits until Empty returns true: a statement of a consumer might still be running.
func (w *world) requireEmpty(q *chanq.Queue[string]) {
	w.Helper()
	w.Eventually("the queue is empty", func() bool { return testdb.Empty(w, q) })
}

// skipInMemory skips the test if a writing transaction also locks the database against readers.
func (w *world) skipInMemory() {
	if w.Engine.Name == testdb.Memory.Name {
		w.Skipf("SKIPPED on %s: a transaction that writes locks the whole database; runs on files with %s=long", w.Engine.Name, testdb.Tier)
	}
}

func emptyOfStates(w *world) {
	for name, cfg := range map[string]chanq.Config{"plain": {}, "ordered": {Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 2}}} {
		cfg.Retain = time.Hour
		q := w.Queue(name, cfg)
		w.requireEmpty(q)
		testdb.Send(w, q, testdb.Texts("done", "dead", "left")...)
		require.False(w, testdb.Empty(w, q), "three are ready")
		leases := testdb.Lease(w, q, 3, time.Hour)
		slices.SortFunc(leases, func(a, b *testdb.Held[string]) int { return cmp.Compare(a.Body, b.Body) }) // the message that stays is last
		for _, l := range leases {
			switch l.Body {
			case "done":
				require.NoError(w, l.Ack())
				require.NoError(w, l.Wait(w.Soon()))
			case "dead":
				require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
				require.NoError(w, l.Wait(w.Soon()))
			default:
				require.NoError(w, l.Extend(w.Soon(), time.Hour)) // the database does not record newer leases of an ordered queue
				require.Equal(w, chanqadmin.Stats{Leased: 1, Dead: 1, Done: 1}, testdb.Counted(w, q))
				require.False(w, testdb.Empty(w, q), "one is leased")
				require.NoError(w, l.Nack(chanq.RetryAfter(time.Hour, nil)))
				require.NoError(w, l.Wait(w.Soon()))
				require.Equal(w, chanqadmin.Stats{Scheduled: 1, Dead: 1, Done: 1}, testdb.Counted(w, q))
				require.False(w, testdb.Empty(w, q), "one is scheduled")
				_, err := q.Cancel(w.Soon(), l.ID)
				require.NoError(w, err)
			}
		}
		require.Equal(w, chanqadmin.Stats{Dead: 1, Done: 1}, testdb.Counted(w, q))
		w.requireEmpty(q)
		require.NoError(w, testdb.Pause(w.Soon(), q))
		w.requireEmpty(q)
		testdb.Send(w, q, testdb.Texts("paused")...)
		require.False(w, testdb.Empty(w, q), "one is ready, and the queue is paused")
	}
}

func emptyBesideEnds(w *world) {
	w.skipInMemory()
	for name, cfg := range map[string]chanq.Config{"deleted": {}, "retained": {Spec: chanq.Spec{Retain: time.Hour}}, "ordered": {Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 2}}} {
		for way, end := range map[string]func(*chanq.Queue[string], *chanq.Lease[string], *sql.Tx) error{
			"acked": func(_ *chanq.Queue[string], l *chanq.Lease[string], tx *sql.Tx) error { return l.AckTx(w.Soon(), tx) },
			"cancelled": func(q *chanq.Queue[string], l *chanq.Lease[string], tx *sql.Tx) error {
				_, err := q.CancelTx(w.Soon(), tx, l.ID)
				return err
			},
		} {
			q := w.Queue(name+"_"+way, cfg)
			testdb.Send(w, q, testdb.Texts("a")...)
			l := testdb.Lease(w, q, 1, time.Hour)[0]
			for _, commit := range []bool{false, true} {
				tx := w.begin(w.DB)
				require.NoError(w, end(q, l.Lease, tx))
				require.False(w, testdb.Empty(w, q), "%s: the ack might be rolled back", way)
				if !commit {
					require.NoError(w, tx.Rollback())
					require.False(w, testdb.Empty(w, q), "%s: the ack was rolled back", way)
					continue
				}
				require.NoError(w, tx.Commit())
				w.requireEmpty(q)
			}
		}
	}
}

func emptyBesideSends(w *world) {
	w.skipInMemory()
	q := w.Queue("work", chanq.Config{})
	for _, commit := range []bool{false, true} {
		tx := w.begin(w.DB)
		w.sendTx(q, tx, testdb.Texts("a")...)
		require.Equal(w, w.Engine.Dialect.Name() != "sqlserver", testdb.Empty(w, q), "only SQL Server shows uncommitted sends")
		if !commit {
			require.NoError(w, tx.Rollback())
			w.requireEmpty(q)
			continue
		}
		require.NoError(w, tx.Commit())
		require.False(w, testdb.Empty(w, q))
	}
}

// emptyOfRelay keeps one message in the queue at all times: each is acked in the transaction that sends the next one. The IDs rise and then
// fall, so for a scan in either direction the next message is stored behind a scan that has reached the acked one. Empty begins before the
// send and might end at any time.
func emptyOfRelay(w *world) {
	w.skipInMemory()
	q := w.Queue("work", chanq.Config{})
	ids := make([]chanq.ID, 21)
	for i := range ids {
		ids[i] = chanq.NewID()
	}
	slices.Reverse(ids[11:])
	testdb.Send(w, q, chanq.Message[string]{ID: ids[0]})
	for _, next := range ids[1:] {
		l := testdb.Lease(w, q, 1, time.Hour)[0]
		tx := w.begin(w.DB)
		require.NoError(w, l.AckTx(w.Soon(), tx))
		empty := make(chan bool, 1)
		go func() { empty <- testdb.Empty(w, q) }()
		<-time.After(20 * time.Millisecond)
		w.sendTx(q, tx, chanq.Message[string]{ID: next})
		require.NoError(w, tx.Commit())
		require.False(w, testdb.Receive(w, empty, "an answer"))
	}
}
