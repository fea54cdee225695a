package guarantees

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Locks on rows that are not messages, and redrives that stay open.
var orderedLocks = []test{
	{"G12_ALockOnTheRowOfAConsumerStopsNoMessage", consumerLocked},
	{"G12_ALockOnTheRowOfAQueueStopsNoMessage", queueLocked},
	{"G12_ALockOnTheRowOfASlotStopsNoMessage", slotLocked},
	{"G12_ALockOnADeadMessageStopsItsKeyAlone", deadLocked},
	{"G10_ARedriveThatStaysOpenIsNotOvertaken", redriveOpen},
	{"G10_ARedriveThatWaitsForTheRowOfItsQueueIsNotOvertaken", redriveWaiting},
	{"G10_ARedriveBeforeALockOnItsQueueIsNotOvertaken", redriveBeforeLock},
	{"G10_ARedriveAfterOneThatWasRolledBackIsNotOvertaken", redriveAfterRollback},
}

func consumerLocked(w *world) {
	w.besideLock("UPDATE chanq__consumers SET name = name WHERE queue = '%s'")
}

func queueLocked(w *world) {
	w.besideLock("UPDATE chanq__queues SET paused = paused WHERE name = '%s'")
}

func slotLocked(w *world) {
	w.keys(chanq.Config{}) // creates the table
	w.besideLock("UPDATE chanq__slots SET fence = fence WHERE queue = '%s'")
}

// besideLock sends messages while a transaction holds the lock of an update for four times LeaseFor. Each message arrives within seconds: a
// membership that cannot be prolonged ends, and the consumer joins again.
func (w *world) besideLock(update string) {
	w.skipWithoutRowLocks()
	for name, cfg := range map[string]chanq.Config{"plain": {}, "keys": {Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4, DeadKey: chanq.DeadKeyHolds}}} {
		q := w.Queue(name, cfg)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
		arrives := func(n int) {
			began := time.Now()
			w.sendApart(q, fmt.Sprint(n))
			w.ackAtLast(c, fmt.Sprint(n))
			w.soon(began, 3*time.Second)
		}
		arrives(0)
		w.Eventually("it has joined", func() bool { return len(consumers(w, q)) == 1 })
		unlock := w.lockRows(fmt.Sprintf(update, name))
		began := time.Now()
		for n := 1; time.Since(began) < 4*steadyLease; n++ {
			arrives(n)
			w.pass(steadyLease / 4)
		}
		unlock()
		arrives(1000)
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

// heldKey has a key that a dead message holds, with two messages behind it.
func (w *world) heldKey() (q *chanq.Queue[string], c *chanq.Consumer[string], dead chanq.ID) {
	w.Helper()
	w.skipWithoutRowLocks()
	q = w.keys(chanq.Config{Spec: chanq.Spec{DeadKey: chanq.DeadKeyHolds}})
	dead = testdb.Send(w, q, keyed("a", 1, 3)...)[0]
	c = testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, w.next(c, "a/1").Nack(chanq.DeadLetter(errors.New("bad"))))
	require.NoError(w, c.Flush(w.Soon()))
	return q, c, dead
}

// othersArrive requires that messages of other keys arrive soon, and none of the held key with them.
func (w *world) othersArrive(q *chanq.Queue[string], c *chanq.Consumer[string], name string) {
	w.Helper()
	for i := range 6 { // also of the slot of the held key
		began := time.Now()
		key := fmt.Sprint(name, i)
		testdb.Send(w, q, append(keyed(key, 1, 1), keyed("a", 4+i, 4+i)...)...)
		w.ack(w.next(c, key+"/1"))
		w.soon(began, 2*time.Second)
		w.pass(500 * time.Millisecond)
	}
}

// inOrder requires the messages of the held key, from the first on.
func (w *world) inOrder(c *chanq.Consumer[string], last int) {
	w.Helper()
	for i := range last {
		w.ack(w.next(c, fmt.Sprint("a/", i+1)))
	}
}

func deadLocked(w *world) {
	q, c, dead := w.heldKey()
	unlock := w.lockRows("UPDATE chanq_work__dead SET attempts = attempts")
	w.othersArrive(q, c, "locked")
	unlock()
	_, db := w.Connect()
	tx := w.begin(db)
	_, err := tx.ExecContext(w.Soon(), "DELETE FROM chanq_work__dead")
	require.NoError(w, err)
	w.pass(2 * time.Second) // for a check of the key
	w.othersArrive(q, c, "deleted")
	require.NoError(w, tx.Rollback())
	w.othersArrive(q, c, "back")
	w.redriveIDs(q, dead)
	w.inOrder(c, 3)
}

// redriveOpen has a redrive that is not committed, then one that is rolled back and one that is committed. A consumer that knows the key, and
// then one that begins meanwhile, deliver other messages only.
func redriveOpen(w *world) {
	q, c, dead := w.heldKey()
	_, db := w.Connect()
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
		tx := w.redriveIn(db, dead)
		w.othersArrive(q, c, "known")
		require.NoError(w, c.Shutdown(w.Soon()))
		c = testdb.Start(w, q, chanq.ConsumerConfig{})
		w.othersArrive(q, c, "new")
		require.NoError(w, end(tx))
		w.pass(2 * time.Second)
	}
	w.inOrder(c, 3)
}

// redriveIn redrives a message in a transaction. The consumer has seen what it can see of that.
func (w *world) redriveIn(db *sql.DB, dead chanq.ID) *sql.Tx {
	w.Helper()
	tx := w.begin(db)
	moved, err := testdb.Rows(w.Soon(), tx, w.orderedStatements().InTx().Redrive(1, [][16]byte{dead}, sqlbatch.Window{}))
	require.NoError(w, err)
	require.Len(w, moved, 1)
	w.pass(2 * time.Second)
	return tx
}

// redriveAfterRollback dead-letters a message of another key during a redrive, which is rolled back just before that message is redriven. The
// consumer reads at other moments, at least in most of the rounds.
func redriveAfterRollback(w *world) {
	q, c, dead := w.heldKey()
	_, db := w.Connect()
	for i := range 4 {
		key := fmt.Sprint("b", i)
		tx := w.redriveIn(db, dead)
		id := testdb.Send(w, q, keyed(key, 1, 2)...)[0]
		require.NoError(w, w.next(c, key+"/1").Nack(chanq.DeadLetter(errors.New("bad"))))
		require.NoError(w, c.Flush(w.Soon()))
		w.pass(2*time.Second + time.Duration(i)*130*time.Millisecond)
		require.NoError(w, tx.Rollback())
		w.redriveIDs(q, id)
		w.ack(w.next(c, key+"/1"))
		w.ack(w.next(c, key+"/2"))
	}
}

// redriveWaiting has a redrive that has moved its message, and waits for the row of the queue.
func redriveWaiting(w *world) {
	q, c, dead := w.heldKey()
	unlock := w.lockRows("UPDATE chanq__queues SET paused = paused WHERE name = 'work'")
	done := make(chan error, 1)
	go func() {
		_, err := testdb.RedriveIDs(w.Soon(), q, dead)
		done <- err
	}()
	w.pass(time.Second)
	w.othersArrive(q, c, "other")
	unlock()
	require.NoError(w, testdb.Receive(w, done, "the redrive"))
	w.inOrder(c, 3)
}

// redriveBeforeLock locks the row of the queue as soon as the redrive has changed it.
func redriveBeforeLock(w *world) {
	q, c, dead := w.heldKey()
	w.othersArrive(q, c, "before")
	w.redriveIDs(q, dead)
	unlock := w.lockRows("UPDATE chanq__queues SET paused = paused WHERE name = 'work'")
	w.inOrder(c, 3)
	unlock()
}
