package guarantees

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Sessions that are renewed or distrusted, trims that are refused, and settles that outlive their
// consumer.
var sessions = []test{
	{"AFlushWaitsForALockedSettleAndAShutdownThatTimesOutCountsIt", lockedAtTheEnd},
	{"SettlesHaveTheirConnectionsThoughHandlersAndAHungClaimHaveAllOthers", settlesBesideHandlers},
	{"SessionsAreRenewed", renewedSessions},
	{"ASessionIsNotUsedAgainAfterAnErrorThatMayLeaveATransaction", distrustedSession},
	{"ARefusedTrimIsReported", refusedTrim},
	{"G13_ATrimContinuesWhereThePreviousOneStopped", trimsGoOn},
	{"AfterARollbackAndShutdownAMessageIsRedelivered", settleAfterTheEnd},
}

func lockedAtTheEnd(w *world) {
	w.skipWithoutRowLocks()
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("stuck", "free")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	leases := testdb.Take(w, c, 2)
	w.lock("work", leases[0].ID)
	for _, l := range leases {
		require.NoError(w, l.Ack())
	}
	require.NoError(w, leases[1].Wait(w.Soon()))
	short, cancel := context.WithTimeout(context.Background(), w.atOnce()/2)
	defer cancel()
	require.ErrorIs(w, c.Flush(short), context.DeadlineExceeded)
	w.Eventually("the settle waits for its next try", func() bool { return c.Stats().Settling == 1 })
	require.Equal(w, 1, c.Stats().Held)
	ended, giveUp := context.WithTimeout(context.Background(), w.atOnce()/2)
	defer giveUp()
	require.ErrorContains(w, c.Shutdown(ended), "leases not settled: 0, settles not confirmed: 1")
	var op *chanq.OpError
	require.ErrorAs(w, leases[0].Wait(w.Soon()), &op)
	if w.Engine.Bubble { // a loaded machine might not get the response of a try in its time
		require.False(w, op.Unknown, "the statement was rolled back")
	}
	require.ErrorContains(w, op, "locked")
	require.NoError(w, c.Shutdown(w.Soon()))
}

// settlesBesideHandlers: handlers take all connections that are not reserved, and wait for their settles before they release one.
func settlesBesideHandlers(w *world) {
	if w.oneWriter() {
		w.Skip("SQLite claims and settles on the same connection")
	}
	const limit = 7 // what a consumer and a producer need, and one for the application
	q := w.Queue("work", chanq.Config{StatementTimeout: 10 * time.Minute})
	w.DB.SetMaxOpenConns(limit)
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	testdb.SendBy(w, p, make([]chanq.Message[string], 20)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	leases := testdb.Take(w, c, 20)
	st := w.Statements("work")
	var hung atomic.Bool
	goOn := make(chan struct{})
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if claims(op, st) || looks(op, st) {
			hung.Store(true)
			return faultdb.Hold(goOn)
		}
		return faultdb.Fault{}
	})
	w.Eventually("the claimer hangs", hung.Load)
	var handlers sync.WaitGroup
	allInUse := make(chan struct{})
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, l := range leases {
		handlers.Go(func() {
			conn, err := w.DB.Conn(soon)
			if err != nil {
				w.Errorf("no connection for a handler: %v", err)
				return
			}
			defer conn.Close()
			<-allInUse
			if err := errors.Join(l.Ack(), l.Wait(soon)); err != nil {
				w.Errorf("ack: %v", err)
			}
		})
	}
	w.Eventually("every connection is in use", func() bool { return w.DB.Stats().InUse == limit })
	close(allInUse)
	handlers.Wait()
	close(goOn)
	require.NoError(w, c.Shutdown(w.Soon()))
	require.NoError(w, p.Close(w.Soon()))
	require.Zero(w, testdb.Counted(w, q))
}

// renewedSessions: sessions are renewed while they are in constant use.
func renewedSessions(w *world) {
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("SQLite's connection is to a file")
	}
	age := slowness * 300 * time.Millisecond
	var mu sync.Mutex
	first, last := map[int]time.Time{}, map[int]time.Time{}
	q := w.Queue("work", chanq.Config{SessionMaxAge: age})
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if acks(op, st) || claims(op, st) || testdb.RunsStore(op, 1, st.Enqueue) {
			mu.Lock()
			defer mu.Unlock()
			if first[op.Conn].IsZero() {
				first[op.Conn] = time.Now()
			}
			last[op.Conn] = time.Now()
		}
		return faultdb.Fault{}
	})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 10 * time.Millisecond})
	renewed := func() bool { // three kinds of work, each renewed three times
		mu.Lock()
		defer mu.Unlock()
		return len(first) >= 3*3
	}
	for began := time.Now(); !renewed(); {
		require.Less(w, time.Since(began), testdb.Patience, "sessions stay")
		_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "a"})
		require.NoError(w, err)
		l := testdb.Take(w, c, 1)[0]
		require.NoError(w, l.Ack())
		require.NoError(w, l.Wait(w.Soon()))
		pass(time.Millisecond) // in a bubble time passes only while all goroutines wait
	}
	mu.Lock()
	defer mu.Unlock()
	for conn := range first {
		require.Less(w, last[conn].Sub(first[conn]), age+w.atOnce()/2)
	}
}

func distrustedSession(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	for class, kept := range map[sqlbatch.Class]bool{
		sqlbatch.RolledBack: true, sqlbatch.BadRow: true,
		sqlbatch.Permanent: false, sqlbatch.NoSchema: false, sqlbatch.Refused: false, sqlbatch.Unknown: false,
	} {
		var mu sync.Mutex
		var conns []int
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if op.Kind == faultdb.Prepare || op.Kind == faultdb.Connect || !strings.Contains(op.Text+textOf(op), "INSERT") {
				return faultdb.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			if conns = append(conns, op.Conn); len(conns) == 1 {
				return faultdb.Fail(w.Engine.Errors[class])
			}
			return faultdb.Fault{}
		})
		_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "a"})
		if err != nil {
			_, err = p.Send(w.Soon(), chanq.Message[string]{Body: "b"})
		}
		require.NoError(w, err)
		w.Faults.Inject(nil)
		if kept && !w.Engine.Bubble {
			continue // on a loaded machine another session may be ready first
		}
		require.Equal(w, kept, conns[0] == conns[1], "%s: %v", class, conns)
	}
}

// textOf returns the text that a procedure executes.
func textOf(op faultdb.Op) string {
	if len(op.Args) > 0 {
		text, _ := op.Args[0].Value.(string)
		return text
	}
	return ""
}

func refusedTrim(w *world) {
	told := make(chan chanq.HousekeepingEvent, 100)
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: time.Millisecond}, Hooks: chanq.Hooks{Housekeeping: func(e chanq.HousekeepingEvent) { told <- e }}})
	st := w.Statements("work")
	refused := w.Failure(sqlbatch.Permanent)
	tries := make(chan struct{}, 100)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if testdb.Runs(op, st.Trim(sqlbatch.Done, time.Millisecond, 1, 0)) {
			tries <- struct{}{}
			return faultdb.Fail(refused)
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for range 3 {
		<-tries
	}
	w.Faults.Inject(nil)
	e := <-told
	require.Equal(w, []string{"work", "trim"}, []string{e.Queue, e.Task})
	require.ErrorIs(w, e.Err, refused)
	e = <-told
	require.NoError(w, e.Err, "reported once, until the trim succeeds")
	require.NoError(w, c.Err())
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Empty(w, told)
}

func settleAfterTheEnd(w *world) {
	q := w.Queue("work", chanq.Config{})
	ids := testdb.Send(w, q, testdb.Texts("a", "b")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 2 * steadyLease})
	leases := testdb.Take(w, c, 2)
	tx := w.begin(w.DB)
	require.NoError(w, chanq.AckTx(w.Soon(), tx, leases...))
	c.Stop()
	require.NoError(w, tx.Rollback())
	require.NoError(w, c.Shutdown(w.Soon()), "Shutdown does not wait for a transaction")
	require.ErrorIs(w, leases[0].Nack(chanq.RetryAfter(time.Hour, errors.New("rolled back"))), chanq.ErrClosed)
	require.ErrorIs(w, leases[0].Wait(w.Soon()), chanq.ErrClosed)
	require.Empty(w, testdb.Get(w, q, ids[0]).LastError)
	for _, l := range testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{}), 2) {
		require.Equal(w, 2, l.Attempt, "its lease has expired")
		w.ack(l)
	}
}

// trimsGoOn: rows before the position of the last round are left to every sixtieth round, which
// starts at the beginning. Other rounds therefore do not scan entries that were deleted before.
func trimsGoOn(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: time.Second}})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	end := func(body string) chanq.ID {
		id := testdb.Send(w, q, testdb.Texts(body)...)[0]
		require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
		require.NoError(w, c.Flush(w.Soon()))
		return id
	}
	gone := func(id chanq.ID) bool {
		_, err := testdb.Admin(q).Get(w.Soon(), id)
		return errors.Is(err, chanq.ErrNotFound)
	}
	first := end("a")
	w.Eventually("the message is trimmed", func() bool { return gone(first) })
	past := "1000"
	if w.Engine.Dialect == sqlserver.Dialect {
		past = "'19700101'"
	}
	var behind chanq.ID
	w.Eventually("a message has an earlier end before it is trimmed", func() bool {
		behind = end("b")
		res, err := w.DB.ExecContext(w.Soon(), "UPDATE chanq_work__done SET ended_at = "+past)
		require.NoError(w, err)
		n, err := res.RowsAffected()
		require.NoError(w, err)
		return n > 0
	})
	last := end("c")
	w.Eventually("the next rounds run", func() bool { return gone(last) })
	require.False(w, gone(behind))
}
