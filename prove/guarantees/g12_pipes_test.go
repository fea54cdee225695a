package guarantees

import (
	"bytes"
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// A blocked message of a pipe delays only itself.
var blockedPipes = []test{
	{"G12_ALockedRowOfAPipeDelaysItselfOnly", lockedInput},
	{"G12_HungClaimPipeAndTrimLoseNoLease", hungOfThreeKinds},
	{"G12_AnInputWhoseOutputHangsIsDeadLetteredAlone", hungOutputs},
	{"G12_AnOutputWhoseKeyIsTakenByAnOpenTransactionDelaysTheOthersOfItsBatchForAWhileOnly", takenKey},
	{"G12_AnOutputThatIsAlwaysRolledBackDelaysTheOthersOfItsBatchForAWhileOnly", undoneOutput},
	{"G12_AnOutputThatIsAlwaysRefusedDelaysItsInputOnly", func(w *world) { failingOutput(w, sqlbatch.Refused) }},
	{"G12_AnOutputWhoseTransactionsHaveUnknownOutcomesDelaysItsInputOnly", func(w *world) { failingOutput(w, sqlbatch.Unknown) }},
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
	stuck := sent[0] // the oldest message is delivered first
	unlock := w.lock("input", stuck)
	began := time.Now()
	close(goOn)
	w.Eventually("the others are replaced", func() bool { return x.c.Stats().Acked == 49 })
	w.soon(began, w.atOnce())
	require.Equal(w, chanqadmin.Stats{Ready: 49}, testdb.Counted(w, x.out))
	pass(2 * troubleLease)
	began = time.Now()
	testdb.Send(w, x.in, testdb.Texts("later")...)
	w.Eventually("the later message is replaced", func() bool { return x.c.Stats().Acked == 50 })
	w.soon(began, w.atOnce())
	unlock()
	w.Eventually("the locked message is replaced", func() bool { return testdb.Counted(w, x.in) == chanqadmin.Stats{} })
	x.stop(w)
	require.Equal(w, chanqadmin.Stats{Ready: 51}, testdb.Counted(w, x.out), "each once")
	for body, n := range handled {
		require.True(w, n == 1 || body == numbers(1)[0], "%s was delivered %d times", body, n)
	}
	require.Empty(w, lost.but(stuck))
}

// hungOfThreeKinds hangs statements of three kinds, each on its own connection, for longer than
// leases last.
func hungOfThreeKinds(w *world) {
	w.skipWithoutRowLocks() // without row locks, statements of three kinds do not have three connections
	var lost losses
	goOn := make(chan struct{})
	x := startPipe(w, chanq.Config{Spec: chanq.Spec{Retain: time.Second}, Hooks: lost.hooks()}, chanq.ConsumerConfig{LeaseFor: troubleLease}, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
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
		case claims(op, st) || looks(op, st):
			kind = "claim"
		case testdb.Runs(op, st.Trim(sqlbatch.Done, time.Second, 1, 0)):
			kind = "trim"
		case testdb.Runs(op, st.InOwnTx().Archive(nil)) || testdb.Runs(op, st.InOwnTx().SkipLocked().Archive(nil)): // no other settle occurs here
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

// hungOutputs: an INSERT that contains the poison hangs.
func hungOutputs(w *world) {
	var r reports
	asked := make(chan error, 10)
	x := startPipe(w, chanq.Config{Spec: chanq.Spec{MaxAttempts: 2}, Hooks: r.hooks(), StatementTimeout: slowness * time.Second}, chanq.ConsumerConfig{LeaseFor: 3 * slowness * time.Second,
		Backoff: func(d *chanq.Delivery, err error) time.Duration {
			require.Equal(w, "input", d.Queue)
			asked <- err
			return time.Millisecond
		}}, passOn)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if carries(op, "poison") {
			return faultdb.Hang()
		}
		return faultdb.Fault{}
	})
	_, db := w.Connect() // without faults
	ids := testdb.Send(w, testdb.OpenOn[string](w, db, "input", chanq.Config{}), testdb.Texts("a", "poison", "b", "c")...)
	w.Eventually("the others are replaced", func() bool { return testdb.Stats(w, x.out).Ready == 3 })
	w.Eventually("the poison is dead", func() bool { return testdb.Stats(w, x.in).Dead == 1 })
	dead := testdb.Get(w, x.in, ids[1])
	require.Equal(w, 2, dead.Attempts)
	require.Equal(w, chanq.CauseOutput, dead.Cause, "its output made the last attempt fail")
	w.Faults.Inject(nil)
	x.stop(w)
	require.ErrorContains(w, <-asked, "output")
	var poison []chanq.OutcomeKind
	for _, e := range r.list {
		if e.ID == ids[1] {
			poison = append(poison, e.Outcome)
			require.Equal(w, e.Outcome == chanq.OutcomeAck, e.Err == nil)
		}
	}
	require.Equal(w, []chanq.OutcomeKind{chanq.OutcomeAck, chanq.OutcomeRetry, chanq.OutcomeAck, chanq.OutcomeDeadLetter}, poison, "for each attempt the call and its outputs")
}

// carries reports whether an argument of a statement contains this text.
func carries(op faultdb.Op, text string) bool {
	return slices.ContainsFunc(op.Args, func(arg driver.NamedValue) bool {
		switch v := arg.Value.(type) {
		case []byte:
			return bytes.Contains(v, []byte(text))
		case string:
			return strings.Contains(v, text)
		}
		return false
	})
}

// undoneOutput: each attempt fails immediately, as if the session's lock_timeout were shorter than
// the attempt and another session held the key of the output.
func undoneOutput(w *world) { failingOutput(w, sqlbatch.RolledBack) }

func failingOutput(w *world, class sqlbatch.Class) {
	x := startPipe(w, chanq.Config{}, chanq.ConsumerConfig{LeaseFor: troubleLease}, passOn)
	fails := faultdb.Fail(w.Failure(class))
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if carries(op, "stuck") {
			return fails
		}
		return faultdb.Fault{}
	})
	_, db := w.Connect() // without faults
	testdb.Send(w, testdb.OpenOn[string](w, db, "input", chanq.Config{}), testdb.Texts(append([]string{"stuck"}, numbers(20)...)...)...)
	w.Eventually("the others are replaced", func() bool { return x.c.Stats().Acked == 20 })
	require.Equal(w, 1, testdb.Stats(w, x.in).Leased)
	w.Faults.Inject(nil)
	w.Eventually("the first is replaced", func() bool { return testdb.Stats(w, x.out).Ready == 21 })
	x.stop(w)
}

// takenKey keeps the other transaction open while the first input is tried.
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
	w.sendTx(other, tx, chanq.Message[string]{Body: "mine", DedupKey: "taken"})
	began := time.Now()
	close(goOn)
	w.Eventually("the others are replaced", func() bool { return x.c.Stats().Acked == 20 })
	require.Less(w, time.Since(began), 2*troubleLease)
	require.NoError(w, tx.Rollback())
	w.Eventually("the first is replaced", func() bool { return x.c.Stats().Acked == 21 })
	x.stop(w)
	require.Equal(w, chanqadmin.Stats{Ready: 21}, testdb.Counted(w, x.out))
}
