package guarantees

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// What is stuck delays itself only.
var trouble = []test{
	{"G12_AnAckThatHangsDelaysNoOther", hungAck},
	{"G12_AnExtensionThatHangsLosesNoLease", hungExtension},
	{"G12_AnExtendThatHangsLosesNoLease", hungExtend},
	{"G12_ALockedRowDelaysItselfOnly", lockedRow},
	{"G12_ALeaseWhoseRowIsLockedForAWhileIsKept", lockedForAWhile},
	{"G12_ALockedRowOfAPipeDelaysItselfOnly", lockedInput},
	{"G12_HungClaimPipeAndTrimLoseNoLease", hungOfThreeKinds},
	{"G12_AnInputWhoseOutputsNeverArriveEndsAlone", hungOutputs},
	{"G12_AnOutputWhoseKeyIsTakenByAnOpenTransactionKeepsTheOthersOfItsGroupForAWhileOnly", takenKey},
	{"G09_WhateverAnExtendOfUnknownOutcomeDoesTheDeadlineIsNotLaterThanTheDatabases", doubtfulExtend},
	{"G09_AnExtensionThatComesLateTakesNothingAway", lateExtension},
	{"AFlushWaitsForALockedSettleAndAShutdownThatGivesUpCountsIt", lockedAtTheEnd},
	{"SessionsAreRenewed", renewedSessions},
	{"ASessionIsNotUsedAgainAfterAnErrorThatMayLeaveATransaction", distrustedSession},
	{"ATrimThatIsRefusedIsTold", refusedTrim},
	{"ASettleAfterARollbackAndTheEndOfTheConsumerIsStored", settleAfterTheEnd},
}

// troubleLease is the lease of tests that wait for two of them.
const troubleLease = testdb.Slowness * 3 * time.Second

// at once: within a second of a machine with nothing else to do.
const atOnce = testdb.Slowness * time.Second

// losses collects what the LeaseLost hook tells.
type losses struct {
	mu   sync.Mutex
	lost []chanq.ID
}

func (l *losses) hooks() chanq.Hooks {
	return chanq.Hooks{LeaseLost: func(e chanq.LeaseLostEvent) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = append(l.lost, e.ID)
	}}
}

func (l *losses) but(id chanq.ID) (others []chanq.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lost := range l.lost {
		if lost != id {
			others = append(others, lost)
		}
	}
	return others
}

// hang has the first connection hang for good on which a meant operation comes, with
// whatever follows on it. A driver of a server does not look at its context meanwhile;
// SQLite has one connection, which could not be replaced then.
func (w *world) hang(meant func(faultdb.Op) bool) (struck <-chan struct{}) {
	gate, hit := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	conn := 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		if conn == 0 && meant(op) {
			conn = op.Conn
			close(hit)
		}
		switch {
		case conn == 0 || op.Conn != conn:
			return faultdb.Fault{}
		case w.Engine.Dialect.Traits().OneWriter:
			return faultdb.Hang()
		}
		return faultdb.Stick(gate)
	})
	w.Cleanup(func() {
		w.Faults.Inject(nil)
		close(gate)
	})
	return hit
}

// again consumes whatever comes due beside another consumer, and counts the
// deliveries of each message.
func (w *world) again(q *chanq.Queue[string]) func() map[chanq.ID]int {
	_, db := w.Connect()
	c, err := testdb.OpenOn[string](w, db, q.Name(), chanq.Config{}).Consume(context.Background(), chanq.ConsumerConfig{})
	require.NoError(w, err)
	var mu sync.Mutex
	got := map[chanq.ID]int{}
	go func() {
		for l := range c.C() {
			mu.Lock()
			got[l.ID]++
			mu.Unlock()
			_ = l.Ack() // whoever held it before learns that it is lost
		}
	}()
	stop := func() map[chanq.ID]int {
		c.Stop()
		_ = c.Shutdown(w.Soon())
		mu.Lock()
		defer mu.Unlock()
		return got
	}
	w.Cleanup(func() { stop() })
	return stop
}

// lock has somebody else's transaction lock the row of a message until the function
// that it returns is called.
func (w *world) lock(queue string, id chanq.ID) (unlock func()) {
	w.Helper()
	_, db := w.Connect()
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(w, err)
	if w.Engine.Dialect.Name() == "postgres" {
		_, err = tx.Exec(`SELECT 1 FROM chanq_`+queue+` WHERE id = $1 FOR UPDATE`, id.String())
	} else {
		_, err = tx.Exec(`UPDATE chanq_`+queue+` SET priority = priority WHERE id = @p1`, id[:])
	}
	require.NoError(w, err)
	unlock = sync.OnceFunc(func() { require.NoError(w, tx.Rollback()) })
	w.Cleanup(unlock)
	return unlock
}

func (w *world) skipWithoutRowLocks() {
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("SQLite has no lock of a row")
	}
}

// waits waits for the outcomes of settles.
func waits(w *world, leases []*chanq.Lease[string]) {
	w.Helper()
	for i, l := range leases {
		require.NoError(w, l.Wait(w.Soon()), "%d of %d", i, len(leases))
	}
}

func pass(d time.Duration) { <-time.After(d) }

func hungAck(w *world) {
	var lost losses
	q := w.Queue("work", chanq.Config{Hooks: lost.hooks()})
	testdb.Send(w, q, testdb.Texts(numbers(200)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: troubleLease})
	leases := testdb.Take(w, c, 200)
	pass(troubleLease / 2) // they are extended, and on their way to the next time
	delivered := w.again(q)
	st := w.Statements("work")
	struck := w.hang(func(op faultdb.Op) bool { return acks(op, st) })
	require.NoError(w, leases[0].Ack())
	w.within("an ack hangs", struck)
	began := time.Now()
	for _, l := range leases[1:] {
		require.NoError(w, l.Ack())
	}
	waits(w, leases[1:])
	if !w.Engine.Dialect.Traits().OneWriter {
		require.Less(w, time.Since(began), atOnce)
	}
	require.NoError(w, leases[0].Wait(w.Soon()), "it is repeated on another connection")
	require.Less(w, time.Since(began), troubleLease, "soon enough for a lease that is not extended any more")
	require.Zero(w, testdb.Counted(w, q))
	require.Empty(w, delivered())
	require.Empty(w, lost.but(chanq.ID{}))
}

func hungExtension(w *world) {
	st := w.Statements("work")
	w.hungWhileHeld(func(op faultdb.Op) bool { return extends(op, st) }, func(*chanq.Lease[string]) {})
}

func hungExtend(w *world) {
	st := w.Statements("work")
	w.hungWhileHeld(func(op faultdb.Op) bool { return ends(op, st) }, func(l *chanq.Lease[string]) {
		var op *chanq.OpError
		require.ErrorAs(w, l.Extend(w.Soon(), time.Hour), &op)
		require.True(w, op.Unknown)
	})
}

// hungWhileHeld holds leases while a statement hangs.
func (w *world) hungWhileHeld(meant func(faultdb.Op) bool, do func(*chanq.Lease[string])) {
	var lost losses
	q := w.Queue("work", chanq.Config{Hooks: lost.hooks()})
	testdb.Send(w, q, testdb.Texts(numbers(20)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: troubleLease})
	leases := testdb.Take(w, c, 20)
	delivered := w.again(q)
	struck := w.hang(meant)
	do(leases[0])
	w.within("a statement hangs", struck)
	pass(2 * troubleLease)
	for _, l := range leases {
		require.NoError(w, l.Ack())
	}
	waits(w, leases)
	require.Empty(w, delivered())
	require.Empty(w, lost.but(chanq.ID{}))
}

func lockedRow(w *world) {
	w.skipWithoutRowLocks()
	var lost losses
	q := w.Queue("work", chanq.Config{Hooks: lost.hooks()})
	testdb.Send(w, q, testdb.Texts(numbers(240)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: troubleLease})
	leases := testdb.Take(w, c, 240)
	stuck, others := leases[100], append(leases[:100:100], leases[101:]...)
	delivered := w.again(q)
	unlock := w.lock("work", stuck.ID)
	began := time.Now()
	extended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), atOnce)
		defer cancel()
		extended <- stuck.Extend(ctx, time.Hour)
	}()
	require.NoError(w, others[238].Extend(w.Soon(), time.Hour))
	require.Less(w, time.Since(began), atOnce)
	require.ErrorContains(w, <-extended, "locked")
	began = time.Now()

	// Settled at once, of each kind; the stuck one among the acks.
	for i, l := range others[:200] {
		switch {
		case i < 180:
			require.NoError(w, l.Ack())
		case i < 190:
			require.NoError(w, l.Nack(time.Hour, nil))
		default:
			require.NoError(w, l.DeadLetter(nil))
		}
		if i == 90 {
			require.NoError(w, stuck.Ack())
		}
	}
	waits(w, others[:200])
	require.Less(w, time.Since(began), atOnce)
	require.Equal(w, 10, testdb.Stats(w, q).Scheduled)
	require.Equal(w, 10, testdb.Stats(w, q).Dead)

	// Extended, while the row is locked, and settled then.
	held := others[200:]
	require.NoError(w, held[0].Extend(w.Soon(), troubleLease))
	pass(time.Until(began.Add(2 * troubleLease)))
	began = time.Now()
	for _, l := range held {
		require.NoError(w, l.Ack())
	}
	waits(w, held)
	require.Less(w, time.Since(began), atOnce)

	unlock()
	if err := stuck.Wait(w.Soon()); err != nil {
		require.ErrorIs(w, err, chanq.ErrLeaseLost)
	}
	for id := range delivered() {
		require.Equal(w, stuck.ID, id)
	}
	require.Empty(w, lost.but(stuck.ID))
}

// lockedForAWhile: over the time of an extension, and less than the lease.
func lockedForAWhile(w *world) {
	w.skipWithoutRowLocks()
	var lost losses
	q := w.Queue("work", chanq.Config{Hooks: lost.hooks()})
	testdb.Send(w, q, testdb.Texts("locked", "free")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: troubleLease})
	leases := testdb.Take(w, c, 2)
	claimed := leases[0].Deadline()
	unlock := w.lock("work", leases[0].ID)
	w.Eventually("the other one is extended", func() bool { return leases[1].Deadline().After(claimed.Add(troubleLease / 6)) })
	unlock()
	w.Eventually("so is this one", func() bool { return leases[0].Deadline().After(claimed.Add(troubleLease / 6)) })
	for _, l := range leases {
		require.NoError(w, l.Ack())
	}
	waits(w, leases)
	require.Empty(w, lost.but(chanq.ID{}))
}

func lockedInput(w *world) {
	w.skipWithoutRowLocks()
	var lost losses
	var mu sync.Mutex
	handled := map[string]int{}
	first, goOn := make(chan struct{}, 100), make(chan struct{})
	x := startPipe(w, chanq.Config{Hooks: lost.hooks()}, chanq.ConsumerConfig{LeaseFor: troubleLease}, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
		mu.Lock()
		handled[l.Body]++
		mu.Unlock()
		first <- struct{}{}
		<-goOn
		return testdb.Texts(l.Body), nil
	})
	sent := testdb.Send(w, x.in, testdb.Texts(numbers(50)...)...)
	<-first
	stuck := sent[0] // the oldest is the first
	unlock := w.lock("input", stuck)
	began := time.Now()
	close(goOn)
	w.Eventually("the others are replaced", func() bool { return x.c.Stats().Acked == 49 })
	require.Less(w, time.Since(began), atOnce)
	require.Equal(w, chanq.Stats{Ready: 49}, testdb.Counted(w, x.out))
	pass(2 * troubleLease)
	began = time.Now()
	testdb.Send(w, x.in, testdb.Texts("later")...)
	w.Eventually("so is what comes later", func() bool { return x.c.Stats().Acked == 50 })
	require.Less(w, time.Since(began), atOnce)
	unlock()
	w.Eventually("and the locked one in the end", func() bool { return testdb.Counted(w, x.in) == chanq.Stats{} })
	x.stop(w)
	require.Equal(w, chanq.Stats{Ready: 51}, testdb.Counted(w, x.out), "once")
	for body, n := range handled {
		require.True(w, n == 1 || body == numbers(1)[0], "%s was delivered %d times", body, n)
	}
	require.Empty(w, lost.but(stuck))
}

// hungOfThreeKinds: each on a connection of its own, for as long as leases could be lost.
func hungOfThreeKinds(w *world) {
	w.skipWithoutRowLocks() // nor have statements of three kinds three connections
	var lost losses
	goOn := make(chan struct{})
	x := startPipe(w, chanq.Config{Retain: time.Second, Hooks: lost.hooks()}, chanq.ConsumerConfig{LeaseFor: troubleLease}, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
		if l.Body != "1" {
			<-goOn
		}
		return testdb.Texts(l.Body), nil
	})
	st := w.Statements("input")
	gate := make(chan struct{})
	var mu sync.Mutex
	hung := map[string]int{}
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		kind := ""
		switch {
		case claims(op, st) || testdb.Runs(op, st.NextDue()):
			kind = "claim"
		case testdb.Runs(op, st.Trim(time.Second, 1, 0)):
			kind = "trim"
		case testdb.Runs(op, st.InOwnTx().Archive(nil)) || testdb.Runs(op, st.InTx().SkipLocked().Archive(nil)): // nothing else settles here
			kind = "pipe"
		default:
			return faultdb.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		if kind == "claim" && x.c.Stats().Claimed < 3 {
			return faultdb.Fault{}
		}
		hung[kind]++
		return faultdb.Stick(gate)
	})
	w.Cleanup(sync.OnceFunc(func() { w.Faults.Inject(nil); close(gate) }))
	testdb.Send(w, x.in, testdb.Texts("1", "2", "3")...)
	w.Eventually("all three hang", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(hung) == 3
	})
	pass(2 * troubleLease)
	require.Empty(w, lost.but(chanq.ID{}))
	require.Equal(w, 3, testdb.Stats(w, x.in).Leased)
	close(goOn)
}

// hungOutputs: an INSERT that has the poison in it never arrives.
func hungOutputs(w *world) {
	poison := []byte("poison")
	x := startPipe(w, chanq.Config{MaxAttempts: 2}, chanq.ConsumerConfig{LeaseFor: 3 * testdb.Slowness * time.Second, StatementTimeout: testdb.Slowness * time.Second,
		Backoff: func(int) time.Duration { return time.Millisecond }}, passOn)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		for _, arg := range op.Args {
			switch v := arg.Value.(type) {
			case []byte:
				if bytes.Contains(v, poison) {
					return faultdb.Hang()
				}
			case string:
				if strings.Contains(v, string(poison)) {
					return faultdb.Hang()
				}
			}
		}
		return faultdb.Fault{}
	})
	_, db := w.Connect() // no faults there
	ids := testdb.Send(w, testdb.OpenOn[string](w, db, "input", chanq.Config{}), testdb.Texts("a", "poison", "b", "c")...)
	w.Eventually("the others are replaced", func() bool { return testdb.Stats(w, x.out).Ready == 3 })
	w.Eventually("the poison is dead", func() bool { return testdb.Stats(w, x.in).Dead == 1 })
	require.Equal(w, 2, testdb.Get(w, x.in, ids[1]).Attempts)
	w.Faults.Inject(nil)
	x.stop(w)
}

// takenKey: the other transaction is open for as long as the first input is tried.
func takenKey(w *world) {
	w.skipWithoutRowLocks()
	first, goOn := make(chan struct{}, 100), make(chan struct{})
	x := startPipe(w, chanq.Config{}, chanq.ConsumerConfig{LeaseFor: troubleLease}, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
		first <- struct{}{}
		<-goOn
		out := testdb.Texts(l.Body)
		if l.Body == "keyed" {
			out[0].DedupKey = "taken"
		}
		return out, nil
	})
	testdb.Send(w, x.in, testdb.Texts(append([]string{"keyed"}, numbers(20)...)...)...)
	<-first
	_, db := w.Connect()
	other := testdb.OpenOn[string](w, db, "output", chanq.Config{})
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(w, err)
	_, err = other.SendTx(w.Soon(), tx, chanq.Message[string]{Body: "mine", DedupKey: "taken"})
	require.NoError(w, err)
	began := time.Now()
	close(goOn)
	w.Eventually("the others are replaced", func() bool { return x.c.Stats().Acked == 20 })
	require.Less(w, time.Since(began), 2*troubleLease)
	require.NoError(w, tx.Rollback())
	w.Eventually("and so is the first", func() bool { return x.c.Stats().Acked == 21 })
	x.stop(w)
	require.Equal(w, chanq.Stats{Ready: 21}, testdb.Counted(w, x.out))
}

func doubtfulExtend(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	st := w.Statements("work")
	for _, c := range []struct {
		what string
		take func() *chanq.Lease[string]
	}{
		{"of TryLease", func() *chanq.Lease[string] { return testdb.Lease(w, q, 1, time.Minute)[0] }},
		{"of a consumer", func() *chanq.Lease[string] {
			return testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Minute}), 1)[0]
		}},
	} {
		l := c.take()
		fence := testdb.Get(w, q, id).Fence
		hit := w.Strike(w.Broken(false), func(op faultdb.Op) bool { return ends(op, st) })
		const d = 2 * time.Second
		began := time.Now()
		var op *chanq.OpError
		require.ErrorAs(w, l.Extend(w.Soon(), d), &op, c.what)
		require.True(w, op.Unknown)
		require.NotEmpty(w, hit.Struck())
		require.False(w, l.Deadline().After(time.Now().Add(d)), "it may have been applied")
		require.NoError(w, l.Extend(w.Soon(), time.Hour))
		// The first strikes now.
		late := st.EndAfter([]sqlbatch.Item{{ID: id, Fence: fence}}, d)
		_, err := w.DB.Exec(late.Text, late.Args...)
		require.NoError(w, err)
		end := testdb.Get(w, q, id).At
		require.False(w, l.Deadline().After(end), "%s: %v after", c.what, l.Deadline().Sub(end))
		require.True(w, l.Deadline().After(began))
		require.NoError(w, l.Release())
		require.NoError(w, l.Wait(w.Soon()))
	}
}

func lateExtension(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	l := testdb.Lease(w, q, 1, time.Hour)[0]
	e := testdb.Get(w, q, id)
	st := w.Statements("work")
	for _, late := range []sqlbatch.Statement{
		st.Extend([]sqlbatch.Item{{ID: id, Fence: e.Fence}}, time.Minute),
		st.SkipLocked().Extend([]sqlbatch.Item{{ID: id, Fence: e.Fence}}, time.Minute),
	} {
		_, err := w.DB.Exec(late.Text, late.Args...)
		require.NoError(w, err)
		require.Equal(w, e.At, testdb.Get(w, q, id).At)
	}
	require.NoError(w, l.Extend(w.Soon(), time.Minute))
	require.True(w, testdb.Get(w, q, id).At.Before(e.At), "Extend may make it shorter")
	require.NoError(w, l.Ack())
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
	short, cancel := context.WithTimeout(context.Background(), atOnce/2)
	defer cancel()
	require.ErrorIs(w, c.Flush(short), context.DeadlineExceeded)
	require.Equal(w, 1, c.Stats().Settling)
	require.Equal(w, 1, c.Stats().Held)
	ended, giveUp := context.WithTimeout(context.Background(), atOnce/2)
	defer giveUp()
	require.ErrorContains(w, c.Shutdown(ended), "0 leases not settled, 1 settles not confirmed")
	var op *chanq.OpError
	require.ErrorAs(w, leases[0].Wait(w.Soon()), &op)
	require.False(w, op.Unknown, "nothing was done")
	require.ErrorContains(w, op, "locked")
	require.NoError(w, c.Shutdown(w.Soon()))
}

// renewedSessions: while all is in use all the time.
func renewedSessions(w *world) {
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("SQLite's connection is to a file")
	}
	const age = testdb.Slowness * 300 * time.Millisecond
	var mu sync.Mutex
	first, last := map[int]time.Time{}, map[int]time.Time{}
	q := w.Queue("work", chanq.Config{SessionMaxAge: age})
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if acks(op, st) || claims(op, st) || testdb.Runs(op, st.Enqueue(make([]sqlbatch.Row, 1))) {
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
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollMax: 10 * time.Millisecond})
	for began := time.Now(); time.Since(began) < 4*age; {
		_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "a"})
		require.NoError(w, err)
		l := testdb.Take(w, c, 1)[0]
		require.NoError(w, l.Ack())
		require.NoError(w, l.Wait(w.Soon()))
	}
	mu.Lock()
	defer mu.Unlock()
	require.GreaterOrEqual(w, len(first), 3*3, "three kinds of work, each renewed thrice")
	for conn := range first {
		require.Less(w, last[conn].Sub(first[conn]), age+atOnce/2)
	}
}

func distrustedSession(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	st := w.Statements("work")
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
		require.Equal(w, kept, conns[0] == conns[1], "%s: %v", class, conns)
	}
	_ = st
}

// textOf is the text that a procedure executes.
func textOf(op faultdb.Op) string {
	if len(op.Args) > 0 {
		text, _ := op.Args[0].Value.(string)
		return text
	}
	return ""
}

func refusedTrim(w *world) {
	told := make(chan chanq.HousekeepingEvent, 100)
	q := w.Queue("work", chanq.Config{Retain: time.Millisecond, Hooks: chanq.Hooks{Housekeeping: func(e chanq.HousekeepingEvent) { told <- e }}})
	st := w.Statements("work")
	refused := w.Failure(sqlbatch.Permanent)
	tries := make(chan struct{}, 100)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if testdb.Runs(op, st.Trim(time.Millisecond, 1, 0)) {
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
	require.NoError(w, e.Err, "once, until it goes on")
	require.NoError(w, c.Err())
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Empty(w, told)
}

func settleAfterTheEnd(w *world) {
	q := w.Queue("work", chanq.Config{})
	ids := testdb.Send(w, q, testdb.Texts("a", "b")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	leases := testdb.Take(w, c, 2)
	tx, err := w.DB.BeginTx(w.Soon(), nil)
	require.NoError(w, err)
	require.NoError(w, chanq.AckTx(w.Soon(), tx, leases...))
	c.Stop()
	require.NoError(w, tx.Rollback())
	require.NoError(w, c.Shutdown(w.Soon()), "it waits for no transaction")
	require.NoError(w, leases[0].Nack(time.Hour, errors.New("rolled back")))
	require.NoError(w, leases[0].Wait(w.Soon()))
	require.Equal(w, "rolled back", testdb.Get(w, q, ids[0]).LastError)
	require.NoError(w, leases[1].Release())
	require.NoError(w, leases[1].Wait(w.Soon()))
	e := testdb.Get(w, q, ids[1])
	require.Equal(w, chanq.StateReady, e.State)
	require.Zero(w, e.Attempts)
}
