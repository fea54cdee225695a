package guarantees

import (
	"context"
	"errors"
	"fmt"
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

var stopWhenIdle = []test{
	{"StopWhenIdleEndsOnceAllThatIsDueIsHandled", idleDrains},
	{"StopWhenIdleHandlesAnImmediateRetryBeforeTheEnd", idleRetries},
	{"StopWhenIdleDoesNotWaitForALaterRetry", idleLater},
	{"StopWhenIdleWaitsForALockedRow", idleLocked},
	{"StopWhenIdleEndsWhereALockedRowIsDeleted", idleDeleted},
	{"StopWhenIdleEndsOnAPausedQueue", idlePaused},
	{"StopWhenIdleContinuesAfterAnOutage", idleOutage},
	{"StopWhenIdleDrainsThoughItsPollsAreSlow", idleSlow},
	{"StopWhenIdleWaitsForDeliveredLeasesAndNotForThoseOfOthers", idleHeld},
	{"StopWhenIdleFindsMessagesBeforeTheHead", idleBelow},
	{"StopWhenIdleWaitsForSlotsOfACrashedConsumerAndNotOfARunningOne", idleSlots},
	{"StopWhenIdleHandlesAKeyInOrderAndEnds", idleKeys},
}

// idleKinds are the queues of these tests.
var idleKinds = map[string]chanq.Config{"plain": {}, "ordered": {Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}}

// onKinds runs a test on a plain queue and on an ordered queue.
func (w *world) onKinds(test func(q *chanq.Queue[string])) {
	for name, cfg := range idleKinds {
		test(w.Queue(name, cfg))
	}
}

// apart opens a queue of onKinds on a *sql.DB of its own.
func (w *world) apart(q *chanq.Queue[string]) *chanq.Queue[string] {
	_, db := w.Connect()
	return testdb.OpenOn[string](w, db, q.Name(), idleKinds[q.Name()])
}

// drains consumes with StopWhenIdle until the consumer stops, and returns the bodies in the order of handling. With a nil handler all are
// acked.
func (w *world) drains(q *chanq.Queue[string], cfg chanq.ConsumerConfig, fn func(*chanq.Lease[string]) error) (bodies []string) {
	w.Helper()
	cfg.StopWhenIdle = true
	c := testdb.Start(w, q, cfg)
	var mu sync.Mutex
	require.NoError(w, c.Handle(4, func(_ context.Context, l *chanq.Lease[string]) error {
		mu.Lock()
		bodies = append(bodies, l.Body)
		mu.Unlock()
		if fn == nil {
			return nil
		}
		return fn(l)
	}))
	require.NoError(w, c.Shutdown(w.Soon()))
	require.NoError(w, c.Err())
	return bodies
}

func idleDrains(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		require.Empty(w, w.drains(q, chanq.ConsumerConfig{}, nil), "nothing was sent")
		for _, prefetch := range []int{1, 1000} {
			testdb.Send(w, q, testdb.Texts(numbers(100)...)...)
			if q.Name() == "plain" { // ordered queues reject a delay
				testdb.Send(w, q, chanq.Message[string]{Body: "later", Delay: time.Hour})
			}
			got := w.drains(q, chanq.ConsumerConfig{Prefetch: prefetch}, nil)
			slices.Sort(got)
			require.Equal(w, numbers(100), got, "each once")
			left := testdb.Counted(w, q)
			require.Equal(w, chanqadmin.Stats{Scheduled: left.Scheduled}, left)
		}
		if q.Name() == "plain" {
			require.Equal(w, 2, testdb.Counted(w, q).Scheduled, "messages with a delay are left")
		}
	})
}

// idleSlow makes each rescan take longer than claims wait for it.
func idleSlow(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		testdb.Send(w, q, testdb.Texts(numbers(300)...)...)
		st := w.Engine.Dialect.Queue(sqlbatch.Names{Queue: q.Name(), Slots: q.Spec().Slots})
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if looks(op, st) || testdb.Runs(op, st.DueOrLocked()) || testdb.Runs(op, st.Slots()) {
				done := make(chan struct{})
				time.AfterFunc(slowness*100*time.Millisecond, func() { close(done) })
				return faultdb.Hold(done)
			}
			return faultdb.Fault{}
		})
		got := w.drains(q, chanq.ConsumerConfig{Prefetch: 16}, nil)
		w.Heal()
		slices.Sort(got)
		require.Equal(w, numbers(300), got, "each message once")
	})
}

func idleRetries(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		testdb.Send(w, q, testdb.Texts(numbers(5)...)...)
		got := w.drains(q, chanq.ConsumerConfig{Prefetch: 1}, func(l *chanq.Lease[string]) error {
			if l.Attempt < 3 {
				return chanq.RetryAfter(0, errors.New("again"))
			}
			return nil
		})
		require.Len(w, got, 15)
		require.Zero(w, testdb.Counted(w, q))
	})
}

func idleLater(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		ms := testdb.Texts("a", "b")
		if q.Name() == "ordered" { // other messages of a key wait behind the first
			ms = append(keyed("hot", 1, 3), chanq.Message[string]{Key: "cold", Body: "cold"})
		}
		testdb.Send(w, q, ms...)
		began := time.Now()
		got := w.drains(q, chanq.ConsumerConfig{}, func(*chanq.Lease[string]) error { return chanq.RetryAfter(time.Hour, errors.New("later")) })
		require.Len(w, got, 2)
		require.Less(w, time.Since(began), time.Hour)
		require.Equal(w, chanqadmin.Stats{Scheduled: 2, Ready: len(ms) - 2}, testdb.Counted(w, q))
	})
}

// idleEnds waits for the end of a consumer.
func (w *world) idleEnds(c *chanq.Consumer[string]) {
	w.Helper()
	for l := range c.C() {
		require.Fail(w, "another message is delivered", l.Body)
	}
	require.NoError(w, c.Err())
	require.NoError(w, c.Shutdown(w.Soon()))
}

// requireRuns requires that the consumer does not stop within 3 s.
func (w *world) requireRuns(c *chanq.Consumer[string], why string) {
	w.Helper()
	w.pass(3 * time.Second)
	select {
	case <-c.Done():
		require.Fail(w, "it has stopped: "+why)
	default:
	}
}

func idleLocked(w *world) {
	w.skipWithoutRowLocks()
	w.onKinds(func(q *chanq.Queue[string]) {
		id := testdb.Send(w, q, testdb.Texts("a")...)[0]
		unlock := w.lock(q.Name(), id)
		c := testdb.Start(w, q, chanq.ConsumerConfig{StopWhenIdle: true})
		w.requireRuns(c, "a row is locked")
		unlock()
		w.ack(w.next(c, "a"))
		w.idleEnds(c)
	})
}

func idleDeleted(w *world) {
	w.skipWithoutRowLocks()
	w.onKinds(func(q *chanq.Queue[string]) {
		for _, commit := range []bool{true, false} {
			id := testdb.Send(w, q, testdb.Texts("a")...)[0]
			tx := w.begin(w.DB)
			_, err := q.CancelTx(w.Soon(), tx, id)
			require.NoError(w, err)
			c := testdb.Start(w, q, chanq.ConsumerConfig{StopWhenIdle: true})
			w.requireRuns(c, "the delete might be rolled back")
			if commit {
				require.NoError(w, tx.Commit())
				if c.Stats().Buffered > 0 { // the owner of an ordered queue has read the message before the commit
					l := w.next(c, "a")
					require.NoError(w, l.Ack())
					require.ErrorIs(w, l.Wait(w.Soon()), chanq.ErrLeaseLost)
				}
			} else {
				require.NoError(w, tx.Rollback())
				w.ack(w.next(c, "a"))
			}
			w.idleEnds(c)
		}
	})
}

func idlePaused(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		testdb.Send(w, q, testdb.Texts("a")...)
		require.NoError(w, testdb.Pause(w.Soon(), q))
		require.Empty(w, w.drains(q, chanq.ConsumerConfig{}, nil))
		require.NoError(w, testdb.Admin(q).Resume(w.Soon(), chanqadmin.Change{}))
		require.Equal(w, []string{"a"}, w.drains(q, chanq.ConsumerConfig{}, nil))
	})
}

// idleOutage makes all statements after the ack of the only message fail until another message is sent.
func idleOutage(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		st := w.Engine.Dialect.Queue(sqlbatch.Names{Queue: q.Name(), Slots: idleKinds[q.Name()].Slots})
		testdb.Send(w, q, testdb.Texts("a")...)
		elsewhere := w.apart(q)
		c := testdb.Start(w, q, chanq.ConsumerConfig{StopWhenIdle: true})
		l := w.next(c, "a")
		var acked atomic.Bool
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			switch {
			case acks(op, st):
				acked.Store(true)
			case acked.Load() && (op.Kind == faultdb.Query || op.Kind == faultdb.Exec):
				return faultdb.Cut(errors.New("away"))
			}
			return faultdb.Fault{}
		})
		w.ack(l)
		w.requireRuns(c, "its poll has failed")
		testdb.Send(w, elsewhere, testdb.Texts("b")...)
		w.Heal()
		w.ack(w.next(c, "b"))
		w.idleEnds(c)
	})
}

func idleHeld(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		testdb.Send(w, q, testdb.Texts("a")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{StopWhenIdle: true})
		l := w.next(c, "a")
		other := testdb.Start(w, q, chanq.ConsumerConfig{StopWhenIdle: true})
		w.idleEnds(other)
		w.requireRuns(c, "a lease is delivered")
		w.ack(l)
		w.idleEnds(c)
	})
}

// idleBelow releases, in another process, a message that is due before all messages that the consumer has claimed.
func idleBelow(w *world) {
	w.Within(10 * time.Minute)
	q := w.Queue("plain", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("first")...)
	first := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 1})
	l := w.next(first, "first")
	first.Stop()
	for range first.C() {
		require.Fail(w, "there is only one message")
	}
	w.pass(time.Minute) // longer than claims look back
	testdb.Send(w, q, testdb.Texts("second")...)
	c := testdb.Start(w, w.apart(q), chanq.ConsumerConfig{StopWhenIdle: true, PollEvery: time.Hour})
	got := w.next(c, "second")
	require.NoError(w, l.Release())
	require.NoError(w, l.Wait(w.Soon()))
	w.ack(got)
	w.ack(w.next(c, "first"))
	w.idleEnds(c)
}

// idleSlots starts consumers of an ordered queue whose slots are owned by a consumer that exists only in the database.
func idleSlots(w *world) {
	q := w.keys(chanq.Config{})
	st := w.orderedStatements()
	testdb.Send(w, q, keyed("a", 1, 2)...)
	consumer := sqlbatch.Consumer{ID: chanq.NewID(), Name: "dead", For: 10 * time.Second}
	for _, s := range []sqlbatch.Statement{st.Join(consumer), st.TakeSlots(consumer.ID, 1, []int{0, 1, 2, 3})} {
		_, err := w.DB.ExecContext(w.Soon(), s.Text, s.Args...)
		require.NoError(w, err)
	}
	began, early := time.Now(), 8*time.Second
	if !w.Engine.Bubble {
		early = time.Second // the consumer that follows must end before the owner is dead, also on a machine that stalls
	}
	require.Empty(w, w.drains(q, chanq.ConsumerConfig{}, nil), "the owner is alive")
	w.pass(early)
	c := testdb.Start(w, q, chanq.ConsumerConfig{StopWhenIdle: true})
	w.idleEnds(c)
	w.pass(consumer.For + time.Second - time.Since(began))
	require.Equal(w, []string{"a/1", "a/2"}, w.drains(q, chanq.ConsumerConfig{}, nil), "the owner is dead")
}

func idleKeys(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{DeadKey: chanq.DeadKeyHolds}})
	var ms []chanq.Message[string]
	for k := range 10 {
		ms = append(ms, keyed(fmt.Sprint("key", k), 1, 20)...)
	}
	testdb.Send(w, q, ms...)
	last := map[string]int{}
	var mu sync.Mutex
	got := w.drains(q, chanq.ConsumerConfig{Prefetch: 7}, func(l *chanq.Lease[string]) error {
		mu.Lock()
		defer mu.Unlock()
		last[l.Key]++
		require.Equal(w, fmt.Sprint(l.Key, "/", last[l.Key]), l.Body)
		if l.Body == "key3/10" {
			return chanq.DeadLetter(errors.New("no"))
		}
		return nil
	})
	require.Len(w, got, 190)
	require.Equal(w, chanqadmin.Stats{Ready: 10, Dead: 1}, testdb.Counted(w, q), "messages behind a dead message are left")
}
