package guarantees

import (
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Operators' calls on a queue in use.
var adminWhileUsed = []test{
	{"PurgeDeletesWhatWasThereWhileProducersSend", purgeBesideProducers},
	{"PurgeLeavesMessagesThatAreDeadLetteredMeanwhile", purgeBesideTheDying},
	{"RedriveMovesEachOnceWhileAConsumerDeadLettersAgain", redriveBesideTheDying},
	{"RedriveMovesAMessageWhoseKeyBecomesFreeMeanwhile", redriveBesideItsKey},
	{"ARedriveLeavesAMessageDeadWhoseKeyAnotherTransactionTakes", redriveBesideAnother},
	{"RedriveWithALimitContinuesWithTheOldest", redriveInParts},
	{"StatsAreExactWhateverTheOtherStatesHold", statsBesideMany},
}

// between calls do, on another connection, before the nth statement like meant runs. The statement waits for do.
func between(w *world, n int, meant sqlbatch.Statement, do func()) {
	if len(meant.Prior) > 0 { // it has a transaction of its own, which must not hold a lock while it waits
		meant = sqlbatch.Statement{Text: w.Engine.Dialect.Begin()[0]}
	}
	var reached atomic.Int64
	gate := make(chan struct{})
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !testdb.Runs(op, meant) || reached.Add(1) != int64(n) {
			return faultdb.Fault{}
		}
		go func() { // ends before the call that runs the statement
			defer close(gate)
			do()
		}()
		return faultdb.Hold(gate)
	})
}

func purgeBesideProducers(w *world) {
	q := w.Queue("work", chanq.Config{})
	_, db := w.Connect()
	other := testdb.OpenOn[string](w, db, "work", chanq.Config{})
	const before, later = 1200, 300
	testdb.Send(w, q, testdb.Texts(make([]string, before)...)...)
	between(w, 1, w.Statements("work").Purge(sqlbatch.Ready, 1, sqlbatch.Window{}), func() {
		testdb.Send(w, other, testdb.Texts(make([]string, later)...)...)
	})
	n := w.purge(q, chanqadmin.StateReady)
	require.Equal(w, before, n, "later messages stay")
	require.Equal(w, chanqadmin.Stats{Ready: later}, testdb.Counted(w, q))
	w.Faults.Inject(nil)
	n = w.purge(q, chanqadmin.StateReady)
	require.Equal(w, later, n)
}

func purgeBesideTheDying(w *world) {
	q := w.Queue("work", chanq.Config{})
	_, db := w.Connect()
	other := testdb.OpenOn[string](w, db, "work", chanq.Config{})
	const before, later = 1200, 300
	kill(w, q, testdb.Texts(make([]string, before)...)...)
	between(w, 2, w.Statements("work").Purge(sqlbatch.Dead, 1, sqlbatch.Window{}), func() {
		kill(w, other, testdb.Texts(make([]string, later)...)...)
	})
	n := w.purge(q, chanqadmin.StateDead)
	require.Equal(w, before, n, "messages that died later stay")
	require.Equal(w, chanqadmin.Stats{Dead: later}, testdb.Counted(w, q))
}

// redriveBesideTheDying dead-letters the messages that were redriven so far again while the others are redriven.
func redriveBesideTheDying(w *world) {
	q := w.Queue("work", chanq.Config{})
	_, db := w.Connect()
	other := testdb.OpenOn[string](w, db, "work", chanq.Config{})
	const dead = 1200
	ids := kill(w, q, testdb.Texts(make([]string, dead)...)...)
	killed := 0
	killAgain := func() {
		c := testdb.Start(w, other, chanq.ConsumerConfig{PollEvery: 10 * time.Millisecond})
		for _, l := range testdb.Take(w, c, 200) {
			require.NoError(w, l.Nack(chanq.DeadLetter(errors.New("again"))))
			killed++
		}
		require.NoError(w, c.Shutdown(w.Soon()))
	}
	st := w.Statements("work")
	between(w, 2, st.Redrive(1, nil, sqlbatch.Window{}), killAgain)
	n := w.redrive(q, 0)
	require.Equal(w, dead, n)
	require.Equal(w, chanqadmin.Stats{Ready: dead - killed, Dead: killed}, testdb.Counted(w, q), "messages that died again stay dead")

	w.Faults.Inject(nil)
	w.redrive(q, 0)
	for range dead / 200 {
		killAgain()
	}
	require.Equal(w, chanqadmin.Stats{Dead: dead}, testdb.Counted(w, q))
	killed = 0
	chunks := (dead + w.Engine.Dialect.Traits().FindIDs - 1) / w.Engine.Dialect.Traits().FindIDs
	between(w, chunks, st.Redrive(1, make([][16]byte, 1), sqlbatch.Window{}), killAgain) // at this statement the list of IDs repeats
	moved := w.redriveIDs(q, append(ids, ids...)...)
	require.ElementsMatch(w, ids, moved, "each message is moved once")
}

// redriveBesideItsKey: of two dead messages with one key, the one with the smaller ID is redriven first. It is dead-lettered again
// meanwhile, so the redrive does not consider it any more and the key is free.
func redriveBesideItsKey(w *world) {
	q := w.Queue("work", chanq.Config{})
	_, db := w.Connect()
	other := testdb.OpenOn[string](w, db, "work", chanq.Config{})
	first := kill(w, q, chanq.Message[string]{DedupKey: "k"})[0]
	second := kill(w, q, chanq.Message[string]{DedupKey: "k"})[0]
	between(w, 2, w.Statements("work").Redrive(1, nil, sqlbatch.Window{}), func() {
		require.NoError(w, testdb.Lease(w, other, 1, time.Minute)[0].Nack(chanq.DeadLetter(errors.New("again"))))
	})
	n := w.redrive(q, 0)
	require.Equal(w, 2, n)
	w.requireState(q, first, chanqadmin.StateDead)
	w.requireState(q, second, chanqadmin.StateReady)
}

// redriveBesideAnother redrives a message while an open transaction has sent or redriven another message with its key. A redrive that reads
// row versions does not see that message, and finds the key taken when the transaction commits.
func redriveBesideAnother(w *world) {
	w.skipWithOneWriter()
	q := w.Queue("work", chanq.Config{})
	_, db := w.Connect()
	other := testdb.OpenOn[string](w, db, "work", chanq.Config{})
	keyed := chanq.Message[string]{DedupKey: "k"}
	send := func(tx *sql.Tx) chanq.ID {
		sent, err := other.SendTx(w.Soon(), tx, keyed)
		require.NoError(w, err)
		return sent[0].ID
	}
	redriveBefore := func(tx *sql.Tx) chanq.ID {
		id := kill(w, q, keyed)[0]
		moved, err := testdb.Rows(w.Soon(), tx, w.Statements("work").Redrive(1, [][16]byte{id}, sqlbatch.Window{}))
		require.NoError(w, err)
		require.Len(w, moved, 1)
		return id
	}
	for _, take := range []func(*sql.Tx) chanq.ID{send, redriveBefore} {
		for _, all := range []bool{true, false} {
			dead := kill(w, q, keyed)[0]
			tx := w.begin(db)
			live := take(tx)
			done := make(chan error, 1)
			go func() {
				s := chanqadmin.Select{All: all}
				if !all {
					s.IDs = []chanq.ID{dead}
				}
				changed, err := testdb.Admin(q).Redrive(w.Soon(), s, chanqadmin.Change{})
				if err == nil && changed.Messages > 0 {
					err = fmt.Errorf("%d messages were redriven", changed.Messages)
				}
				done <- err
			}()
			w.pass(50 * time.Millisecond) // time for the redrive to wait for the key
			require.NoError(w, tx.Commit())
			require.NoError(w, testdb.Receive(w, done, "the redrive"))
			w.requireState(q, dead, chanqadmin.StateDead)
			w.requireState(q, live, chanqadmin.StateReady)
			cancelled, err := q.Cancel(w.Soon(), live)
			require.NoError(w, err)
			require.Len(w, cancelled, 1)
			_, err = testdb.PurgeIDs(w.Soon(), q, dead)
			require.NoError(w, err)
		}
	}
}

// The default tier runs this test with the row versions of SQL Server.
func TestARedriveThatReadsRowVersionsLeavesAMessageDeadWhoseKeyIsTaken(t *testing.T) {
	t.Parallel()
	testdb.EmulatorVersions.Require(t)
	testdb.Run(t, testdb.EmulatorVersions, func(w *testdb.World) { redriveBesideAnother(&world{w}) })
}

func redriveInParts(w *world) {
	q := w.Queue("work", chanq.Config{})
	var ids []chanq.ID
	for range 3 {
		ids = append(ids, kill(w, q, testdb.Texts(make([]string, 400)...)...)...)
	}
	n := w.redrive(q, 1100)
	require.Equal(w, 1100, n)
	require.Equal(w, chanqadmin.Stats{Ready: 1100, Dead: 100}, testdb.Counted(w, q))
	w.requireState(q, ids[799], chanqadmin.StateReady)
	twice := w.redriveIDs(q, append(ids, ids...)...)
	require.Len(w, twice, 100, "a message that is named twice is moved once")
}

// statsBesideMany has more messages of one state than are counted, before and behind a few of another state.
func statsBesideMany(w *world) {
	if testdb.Slowness > 1 && w.Engine.Needs == "" {
		w.Skip("nothing in this test is concurrent, and with the race detector it would take a minute; the check runs it without")
	}
	q := w.Queue("work", chanq.Config{})
	const limit, many, few = 10_000, 10_500, 10
	some := func(n int, d time.Duration) []chanq.Message[string] {
		batch := make([]chanq.Message[string], n)
		for i := range batch {
			batch[i].Delay = d
		}
		return batch
	}
	for range many / 1500 {
		testdb.Send(w, q, some(1500, 0)...)
	}
	testdb.Send(w, q, some(few, 48*time.Hour)...)
	require.Equal(w, chanqadmin.Stats{Ready: limit, Scheduled: few}, testdb.Counted(w, q))
	for range many / 500 {
		w.Hold(q.Name(), 500, 24*time.Hour)
	}
	require.Equal(w, chanqadmin.Stats{Scheduled: few, Leased: limit}, testdb.Counted(w, q), "few scheduled behind many leased")
	entries := w.peek(q, chanqadmin.StateScheduled, 1000)
	require.Len(w, entries, few)

	n := w.purge(q, chanqadmin.StateLeased)
	require.Equal(w, many, n)
	testdb.Send(w, q, some(few, 0)...)
	w.Hold(q.Name(), few, 72*time.Hour)
	for range many / 1500 {
		testdb.Send(w, q, some(1500, time.Hour)...)
	}
	require.Equal(w, chanqadmin.Stats{Scheduled: limit, Leased: few}, testdb.Counted(w, q), "few leased behind many scheduled")
	entries = w.peek(q, chanqadmin.StateLeased, 1000)
	require.Len(w, entries, few)
}
