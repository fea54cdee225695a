package guarantees

import (
	"context"
	"errors"
	"fmt"
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

var settling = []test{
	{"G03_AFormerHolderCannotChangeTheMessage", formerHolder},
	{"G03_AMessageHeldTwiceIsSettledOnceInOneBatch", heldTwice},
	{"G03_ASettleOfUnknownOutcomeIsRepeatedUntilItIsKnown", unknownSettle},
	{"AFailedCheckOfARowLeavesNoOutcomeUnknown", lookFails},
	{"ASettleLingersUntilACallWaits", settlesLinger},
	{"ANackIsDueAfterItsDelayWithItsError", nackDelays},
	{"ASnoozeIsUncountedDueAfterItsDelayAndFenced", releaseAfter},
	{"AckOfManyWaitsForAllAndReturnsEachOutcome", ackAll},
	{"AckOfManyReturnsWithItsContext", ackAllContext},
	{"AckOfManyReturnsWithItsContextWhereTheBacklogIsFull", ackAllFull},
	{"ReceiveReturnsWithItsContextWhereTheBacklogIsFull", receiveFull},
}

// settle is a way to settle a lease, with the resulting state.
type settle struct {
	name  string
	do    func(*chanq.Lease[string]) error
	state chanqadmin.State // "" if the message is deleted
}

var settles = []settle{
	{"ack", (*chanq.Lease[string]).Ack, ""},
	{"nack", func(l *chanq.Lease[string]) error { return l.Nack(chanq.RetryAfter(0, errors.New("again"))) }, chanqadmin.StateReady},
	{"release", (*chanq.Lease[string]).Release, chanqadmin.StateReady},
	{"dead-letter", func(l *chanq.Lease[string]) error { return l.Nack(chanq.DeadLetter(errors.New("enough"))) }, chanqadmin.StateDead},
}

// stored settles and returns the outcome.
func stored(settle func(*chanq.Lease[string]) error, l *testdb.Held[string]) error {
	if err := settle(l.Lease); err != nil {
		return err
	}
	return l.Wait(context.Background())
}

func (w *world) requireState(q *chanq.Queue[string], id chanq.ID, s chanqadmin.State, note ...any) {
	w.Helper()
	e, err := testdb.Admin(q).Get(w.Soon(), id)
	if s == "" {
		require.ErrorIs(w, err, chanq.ErrNotFound, note...)
		return
	}
	require.NoError(w, err, note...)
	require.Equal(w, s, e.State, note...)
}

func formerHolder(w *world) {
	for _, cfg := range []chanq.Config{{}, {Spec: chanq.Spec{Retain: time.Hour}}} {
		q := w.Queue("work", cfg)
		for _, s := range append(settles[:len(settles):len(settles)], struct {
			name  string
			do    func(*chanq.Lease[string]) error
			state chanqadmin.State
		}{"extend", func(l *chanq.Lease[string]) error { return l.Extend(w.Soon(), time.Minute) }, ""}) {
			id := testdb.Send(w, q, testdb.Texts(s.name)...)[0]
			former := testdb.Lease(w, q, 1, formerLease)[0]
			holder := testdb.Lease(w, q, 1, time.Minute)[0]
			w.holderIsKnown(q, id)
			before := testdb.Get(w, q, id)
			require.ErrorIs(w, stored(s.do, former), chanq.ErrLeaseLost, s.name)
			require.Equal(w, before, testdb.Get(w, q, id), s.name)
			require.NoError(w, holder.Ack(), s.name)
		}
		id := testdb.Send(w, q, testdb.Texts("in a transaction")...)[0]
		former := testdb.Lease(w, q, 1, formerLease)[0]
		holder := testdb.Lease(w, q, 1, time.Minute)[0]
		tx := w.begin(w.DB)
		require.ErrorIs(w, former.AckTx(w.Soon(), tx), chanq.ErrLeaseLost)
		require.NoError(w, tx.Commit())
		require.Equal(w, chanqadmin.StateLeased, testdb.Get(w, q, id).State)
		require.NoError(w, holder.Ack())
	}
}

// grouping is a consumer whose settles the test can hold and combine into one batch. It has its own connection and stops claiming after
// stopClaims.
type grouping struct {
	*world
	faults   *faultdb.Connector
	consumer *chanq.Consumer[string]
	queue    *chanq.Queue[string]

	mu     sync.Mutex
	gate   chan struct{} // blocks the next ack
	held   chan struct{} // closed when an ack is blocked
	noMore bool          // claims fail
	failed int           // claims that failed
	groups []chanq.SettledEvent
}

func newGrouping(w *world, name string) *grouping {
	g := &grouping{world: w}
	faults, db := w.Connect()
	cfg := chanq.Config{}
	cfg.Hooks.Settled = func(e chanq.SettledEvent) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.groups = append(g.groups, e)
	}
	g.faults, g.queue = faults, testdb.OpenOn[string](w, db, name, cfg)
	st := w.Statements(name)
	refused := w.Failure(sqlbatch.RolledBack)
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		g.mu.Lock()
		defer g.mu.Unlock()
		switch {
		case g.noMore && claims(op, st):
			g.failed++
			return faultdb.Fail(refused)
		case g.gate != nil && testdb.Runs(op, st.Ack(nil)):
			gate := g.gate
			g.gate = nil
			close(g.held)
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	lease := testdb.Slowness * testdb.Of(20*time.Second, 5*time.Second) // which must not expire before the batch is made
	g.consumer = testdb.Start(w, g.queue, chanq.ConsumerConfig{LeaseFor: lease, MaxExtend: 100 * time.Millisecond})
	return g
}

// stopClaims returns when no claim is running.
func (g *grouping) stopClaims() {
	g.mu.Lock()
	g.noMore, g.failed = true, 0
	g.mu.Unlock()
	g.Eventually("a claim fails", func() bool {
		g.queue.Wake()
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.failed > 0
	})
}

// group acks first alone and combines all settles that settle makes into the next batch.
func (g *grouping) group(first *chanq.Lease[string], settle func()) chanq.SettledEvent {
	gate, held := make(chan struct{}), make(chan struct{})
	g.mu.Lock()
	g.gate, g.held, g.groups = gate, held, nil
	g.mu.Unlock()
	require.NoError(g, first.Ack())
	select {
	case <-held:
	case <-time.After(testdb.Patience):
		require.Fail(g, "the first ack was not stored")
	}
	settle()
	close(gate)
	require.NoError(g, g.consumer.Flush(g.Soon()))
	g.Eventually("both batches are reported, which Flush does not wait for", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.groups) >= 2
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Len(g, g.groups, 2)
	if size := func(e chanq.SettledEvent) int { return e.Acked + e.Nacked + e.Released + e.Dead + e.Lost }; size(g.groups[0]) > size(g.groups[1]) {
		return g.groups[0] // with two workers, the other worker might finish before the held ack
	}
	return g.groups[1]
}

// ended waits until the contexts of leases that are not extended end.
func (w *world) ended(leases ...*chanq.Lease[string]) {
	w.Helper()
	for _, l := range leases {
		select {
		case <-l.Context().Done():
			require.ErrorIs(w, context.Cause(l.Context()), chanq.ErrLeaseLost)
		case <-time.After(testdb.Patience):
			require.Fail(w, "the lease does not end")
		}
	}
}

func heldTwice(w *world) {
	for i, staleFirst := range []bool{true, false} {
		for j, s := range settles {
			for try := 0; !heldTwiceBy(w, fmt.Sprintf("twice%d%d%d", i, j, try), staleFirst, s); try++ {
				require.Less(w, try, 5)
			}
		}
	}
}

// heldTwiceBy settles two leases of a message in one batch, the first of which is lost. It reports whether the other one lasted until then:
// on a slow machine it might not.
func heldTwiceBy(w *world, name string, staleFirst bool, s settle) (lasted bool) {
	note := fmt.Sprintf("%s, stale first: %v", s.name, staleFirst)
	q := w.Queue(name, chanq.Config{})
	testdb.Send(w, q, testdb.Texts("twice")...)
	g := newGrouping(w, name)
	stale := testdb.Take(w, g.consumer, 1)[0]
	w.ended(stale)
	// Another consumer has released it since, unless this one has leased it again.
	w.Exec(fmt.Sprintf("UPDATE chanq_%s SET leased_by = NULL, fence = fence + 1 WHERE fence = CAST(%d AS bigint)", name, stale.Fence))
	testdb.Send(w, q, testdb.Texts("first")...)
	var current, first *chanq.Lease[string]
	take := func() {
		if l := testdb.Take(w, g.consumer, 1)[0]; l.Body == "first" {
			first = l
		} else {
			current = l
		}
	}
	for current == nil || first == nil {
		take()
	}
	g.stopClaims()
	for len(g.consumer.C()) > 0 { // on a slow machine a lease might have expired before
		take()
	}
	require.Equal(w, stale.ID, current.ID, note)
	deadline := current.Deadline()
	event := g.group(first, func() {
		order := []*chanq.Lease[string]{stale, current}
		if !staleFirst {
			order = []*chanq.Lease[string]{current, stale}
		}
		for _, l := range order {
			require.NoError(w, s.do(l), note)
		}
	})
	if time.Now().After(deadline) {
		return false
	}
	require.Equal(w, 1, event.Acked+event.Nacked+event.Released+event.Dead, note)
	require.Equal(w, 1, event.Lost, note)
	require.ErrorIs(w, stale.Wait(w.Soon()), chanq.ErrLeaseLost, note)
	require.NoError(w, current.Wait(w.Soon()), note)
	w.requireState(q, current.ID, s.state, note)
	return true
}

// unknownSettle cuts each operation of a settle, which is a transaction on some engines.
func unknownSettle(w *world) {
	for kind, ended := range map[string]chanqadmin.State{"deletes": "", "retains": chanqadmin.StateDone} {
		q := w.Queue(kind, chanq.Config{Spec: chanq.Spec{Retain: map[string]time.Duration{"retains": time.Hour}[kind]}})
		for _, s := range settles {
			for i, applied := 0, false; ; applied = !applied {
				id := testdb.Send(w, q, testdb.Texts("a")...)[0]
				l := testdb.Lease(w, q, 1, time.Minute)[0]
				hit := w.StrikeNth(i, w.Broken(applied))
				err := stored(s.do, l)
				note := fmt.Sprintf("a queue that %s: %s, applied: %v, %s", kind, s.name, applied, hit.Struck())
				require.NoError(w, err, note)
				w.Faults.Inject(nil)
				state := s.state
				if state == "" {
					state = ended
				}
				w.requireState(q, id, state, note)
				_, err = q.Cancel(w.Soon(), id)
				require.NoError(w, err)
				if hit.Struck() == "" {
					require.Positive(w, i, "%s: no operation was struck", note)
					break
				}
				if applied {
					i++
				}
			}
		}
	}
}

// lookFails cuts the query for rows that a settle or an extension did not return. Their statements have already reported that nothing
// changed.
func lookFails(w *world) {
	q := w.Queue("work", chanq.Config{})
	st := w.Statements("work").Look(nil)
	looks := func(op faultdb.Op) bool { return testdb.Runs(op, st) }
	for _, s := range settles {
		testdb.Send(w, q, testdb.Texts("a")...)
		stale := testdb.Lease(w, q, 1, formerLease)[0]
		require.NoError(w, testdb.Lease(w, q, 1, time.Minute)[0].Ack())
		hit := w.Strike(w.Broken(false), looks)
		require.ErrorIs(w, stored(s.do, stale), chanq.ErrLeaseLost, s.name)
		require.NotEmpty(w, hit.Struck(), s.name)
	}
	testdb.Send(w, q, testdb.Texts("a")...)
	stale := testdb.Lease(w, q, 1, formerLease)[0]
	require.NoError(w, testdb.Lease(w, q, 1, time.Minute)[0].Ack())
	w.Strike(w.Broken(false), looks)
	var op *chanq.OpError
	require.ErrorAs(w, stale.Extend(w.Soon(), time.Minute), &op)
	require.False(w, op.Unknown, "no lease was extended")
	require.ErrorIs(w, stale.Extend(w.Soon(), time.Minute), chanq.ErrLeaseLost)
}

// settlesLinger: the statement of a settle is delayed if no call waits for it, so that other settles can share it. Wait and Stop end the
// delay.
func settlesLinger(w *world) {
	if !w.Engine.Bubble {
		w.Skip("on a real clock the 5 ms of a settle's linger pass during the test's queries")
	}
	const all = 20
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(all)...)...)
	var statements atomic.Int64
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if acks(op, st) {
			statements.Add(1)
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	leases := testdb.Take(w, c, all)
	ack := func(n int) (last *chanq.Lease[string]) {
		for range n {
			last, leases = leases[0], leases[1:]
			require.NoError(w, last.Ack())
		}
		return last
	}
	for range 10 {
		ack(1)
		for range 5 { // round trips during which the settle could be stored
			require.Equal(w, chanqadmin.Stats{Leased: all}, testdb.Counted(w, q))
		}
	}
	require.NoError(w, ack(1).Wait(w.Soon()), "after the settle")
	require.EqualValues(w, 1, statements.Load(), "all share one statement")
	require.Equal(w, chanqadmin.Stats{Leased: all - 11}, testdb.Counted(w, q))

	ended, end := context.WithCancel(context.Background())
	end()
	require.ErrorIs(w, leases[0].Wait(ended), context.Canceled, "before the settle")
	l := ack(1)
	w.Eventually("the settle does not wait for a batch as large as the previous one", func() bool { return c.Stats().Acked == 12 })
	require.NoError(w, l.Wait(w.Soon()))

	require.NoError(w, ack(7).Wait(w.Soon()))
	ack(1)
	require.NoError(w, c.Shutdown(w.Soon()), "the last settle does not wait either")
	require.Zero(w, testdb.Counted(w, q))
}

func nackDelays(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	require.NoError(w, l.Nack(chanq.RetryAfter(time.Hour, errors.New("später: \x00 \xff"))))
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateScheduled, e.State)
	require.Contains(w, e.LastError, "später")
	require.Equal(w, 1, e.Attempts)
	require.Empty(w, e.LeasedBy)
	testdb.RequireNone(w, q)
}

func ackAll(w *world) {
	q := w.Queue("work", chanq.Config{})
	sent := testdb.Send(w, q, testdb.Texts(numbers(6)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	leases := testdb.Take(w, c, 6)
	require.NoError(w, leases[1].Release(), "settled before")
	require.NoError(w, c.Flush(w.Soon()))
	_, err := q.Cancel(w.Soon(), sent[4])
	require.NoError(w, err)
	err = chanq.Ack(w.Soon(), append(leases, leases[0])...)
	var batch *chanq.BatchError
	require.ErrorAs(w, err, &batch)
	require.Len(w, batch.Errs, 7)
	for i, want := range []error{1: chanq.ErrSettled, 4: chanq.ErrLeaseLost, 6: nil} {
		require.ErrorIs(w, batch.Errs[i], want, i)
		var op *chanq.OpError
		if want != nil {
			require.ErrorAs(w, batch.Errs[i], &op)
			require.Equal(w, chanq.OpError{Op: "ack", Queue: "work", ID: sent[i], Err: want}, *op)
		}
	}
	for i, id := range sent {
		if i != 1 {
			w.requireState(q, id, "", i) // immediately, because Ack has waited
		}
	}
	require.NoError(w, chanq.Ack[string](w.Soon()))
	require.ErrorContains(w, chanq.Ack(w.Soon(), leases[0], nil), "lease 1 is nil")
}

func ackAllContext(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	st := w.Statements("work")
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	held := testdb.Take(w, c, 2)
	struck, free := w.stick(func(op faultdb.Op) bool { return acks(op, st) })
	ctx, cancel := context.WithCancel(w.Soon())
	go func() {
		<-struck
		cancel()
	}()
	err := chanq.Ack(ctx, held...)
	require.ErrorIs(w, err, context.Canceled)
	var op *chanq.OpError
	require.ErrorAs(w, err, &op)
	require.True(w, op.Unknown)
	free()
	require.NoError(w, held[0].Wait(w.Soon()), "the consumer continues")
}

func releaseAfter(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	require.NoError(w, testdb.Lease(w, q, 1, time.Minute)[0].Nack(chanq.Snooze(0, nil)))
	for range 3 {
		former := testdb.Lease(w, q, 1, 2*formerLease)[0]
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, 2, l.Attempt, "the lapse counts")
		require.ErrorIs(w, former.Nack(chanq.Snooze(time.Hour, nil)), chanq.ErrLeaseLost)
		require.NoError(w, l.Nack(chanq.Snooze(0, nil)))
		e := testdb.Get(w, q, id)
		require.Equal(w, chanqadmin.StateReady, e.State)
		require.Zero(w, e.Attempts, "neither this attempt nor the lapse before it")
	}
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	before := time.Now()
	require.NoError(w, l.Nack(chanq.Snooze(time.Hour, nil)), "also in the last attempt")
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateScheduled, e.State)
	require.WithinDuration(w, before.Add(time.Hour), e.DueAt, time.Minute)
	require.Greater(w, e.Fence, l.Fence)
}

// fullBacklog returns more leases than the backlog of settles has room for; the database does not respond.
func fullBacklog(w *world) (c *chanq.Consumer[string], leases []*chanq.Lease[string]) {
	const room, underWay, left = 4096, 2 * 1000, 100
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(room+underWay+2*left)...)...)
	c = testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 1000, LeaseFor: 5 * steadyLease})
	leases = testdb.Take(w, c, room+underWay+left)
	w.Eventually("the rest is in the buffer", func() bool { return c.Stats().Buffered == left })
	w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Hang() })
	return c, leases
}

// ackAllBriefly calls Ack with a context that ends soon.
func ackAllBriefly(w *world, leases []*chanq.Lease[string]) error {
	ctx, cancel := context.WithTimeout(context.Background(), steadyLease/5)
	defer cancel()
	result, returned := error(nil), make(chan struct{})
	go func() {
		defer close(returned)
		result = chanq.Ack(ctx, leases...)
	}()
	w.within("Ack returns", returned)
	return result
}

func ackAllFull(w *world) {
	c, leases := fullBacklog(w)
	var batch *chanq.BatchError
	require.ErrorAs(w, ackAllBriefly(w, leases), &batch)
	var free []*chanq.Lease[string]
	for i, err := range batch.Errs {
		require.ErrorIs(w, err, context.DeadlineExceeded)
		var op *chanq.OpError
		require.ErrorAs(w, err, &op)
		if !op.Unknown {
			free = append(free, leases[i])
		}
	}
	require.NotEmpty(w, free, "there was no room for their acks")
	w.Faults.Inject(nil)
	require.NoError(w, chanq.Ack(w.Soon(), free...), "these leases are still held")
	require.NoError(w, c.Shutdown(w.Soon()))
}

func receiveFull(w *world) {
	c, leases := fullBacklog(w)
	require.Error(w, ackAllBriefly(w, leases))
	pass(10 * steadyLease) // the leases in the buffer have expired
	ctx, cancel := context.WithTimeout(context.Background(), steadyLease/5)
	defer cancel()
	result, returned := error(nil), make(chan struct{})
	go func() {
		defer close(returned)
		_, result = c.Receive(ctx, 1, 0)
	}()
	w.within("Receive returns", returned)
	require.ErrorIs(w, result, context.DeadlineExceeded)
	w.Faults.Inject(nil)
	require.NoError(w, c.Shutdown(w.Soon()))
}
