package guarantees

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// A blocked message, and one whose statements take long because its body has megabytes, delays only itself.
var hangingStatements = []test{
	{"G12_AnAckThatHangsDelaysNoOther", hungAck},
	{"G12_AnExtensionThatHangsLosesNoLease", hungExtension},
	{"G12_AnExtendThatHangsLosesNoLease", hungExtend},
	{"G12_AnExtensionThatTakesLongLosesNoOtherLease", slowExtension},
	{"G12_ARecurringTaskThatHangsLosesNoLease", hungTasks},
	{"G12_APollThatHangsLosesNoLease", hungLooks},
	{"G12_AStatementOfClaimsThatHangsLosesNoLease", hungClaims},
	{"G12_ALockedRowDelaysItselfOnly", lockedRow},
	{"G09_AfterAnExtendOfUnknownOutcomeTheDeadlineIsNotLaterThanTheDatabases", doubtfulExtend},
	{"G09_ALateExtensionShortensNoLease", lateExtension},
}

// troubleLease is the lease of tests that wait for two lease periods.
var troubleLease = slowness * 6 * time.Second

// atOnce is the time within which operations finish that do not wait for a blocked message. On the real clock a busy machine needs more.
func (w *world) atOnce() time.Duration {
	if w.Engine.Bubble {
		return time.Second
	}
	return troubleLease / 2
}

// losses collects the LeaseLost events.
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

func (l *losses) but(ids ...chanq.ID) (others []chanq.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lost := range l.lost {
		if !slices.Contains(ids, lost) {
			others = append(others, lost)
		}
	}
	return others
}

// hang makes the first connection hang permanently on which an operation that meant accepts arrives, including all later operations on it.
// Drivers of servers ignore their context meanwhile. SQLite has only one connection, which could then not be replaced, so there the context
// ends the wait.
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

// again runs another consumer, which acks whatever becomes due, and counts the deliveries of each message.
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
			_ = l.Ack() // the former holder detects the loss
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

// lock locks the row of a message in a transaction of another session until unlock is called.
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
		w.Skip("SQLite has no row locks")
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
	pass(troubleLease / 2) // the leases were extended, and the next extension is due soon
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
		w.soon(began, w.atOnce())
	}
	require.NoError(w, leases[0].Wait(w.Soon()), "the ack is repeated on another connection")
	require.Less(w, time.Since(began), troubleLease, "before the lease would expire without another extension")
	require.Zero(w, testdb.Counted(w, q))
	require.Empty(w, delivered())
	require.Empty(w, lost.but(chanq.ID{}))
}

func hungExtension(w *world) {
	st := w.Statements("work")
	w.hungWhileHeld(func(op faultdb.Op) bool { return extends(op, st) }, func(*chanq.Lease[string]) {})
}

// hungTasks makes the periodic tasks of a consumer hang until their timeouts while messages are handled. On SQLite all statements share one
// connection.
func hungTasks(w *world) {
	lease := testdb.Of(troubleLease, steadyLease) // 6 s and 4.5 s: on real clocks the tasks take a minute together
	is := func(sts ...sqlbatch.Statement) func(faultdb.Op) bool {
		return func(op faultdb.Op) bool {
			return slices.ContainsFunc(sts, func(st sqlbatch.Statement) bool { return testdb.Runs(op, st) })
		}
	}
	for _, kind := range []string{"plain", "ordered"} {
		st := w.Statements(kind)
		if kind == "ordered" {
			st = w.Engine.Dialect.Queue(sqlbatch.Names{Queue: kind, Slots: 4})
		}
		tasks := map[string]func(faultdb.Op) bool{
			"heartbeat": is(st.Join(sqlbatch.Consumer{})), "policy": is(st.Version()), "trim": is(st.Trim(sqlbatch.Done, time.Second, 1, 0)),
		}
		if kind == "ordered" {
			delete(tasks, "heartbeat") // without heartbeats the consumer's registration expires, and its leases with it
		}
		for name, meant := range tasks {
			var lost losses
			cfg := idleKinds[kind]
			cfg.Retain, cfg.Hooks = time.Second, lost.hooks()
			q := w.Queue(kind, cfg)
			w.sendApart(q, numbers(3)...)
			c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lease, PollEvery: lease / 10})
			held := testdb.Take(w, c, 3)
			var hung atomic.Int64
			w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
				if meant(op) {
					hung.Add(1)
					return faultdb.Hang()
				}
				return faultdb.Fault{}
			})
			pass(3 * lease)
			require.Positive(w, hung.Load(), "%s of %s", name, kind)
			require.Empty(w, lost.but(), "%s of %s", name, kind)
			w.Heal()
			for _, l := range held {
				w.ack(l)
			}
			require.NoError(w, c.Shutdown(w.Soon()))
		}
	}
}

// hungLooks makes reads hang while messages are handled: each poll for due messages, or the first query for the row of a settle that its
// statement did not return.
func hungLooks(w *world) {
	lease := testdb.Of(time.Second, steadyLease)
	for kind, cfg := range idleKinds {
		st := w.Engine.Dialect.Queue(sqlbatch.Names{Queue: kind, Slots: cfg.Slots})
		for name, meant := range map[string]func(faultdb.Op) bool{
			"due":    func(op faultdb.Op) bool { return looks(op, st) || readsSlots(op, st) || testdb.Runs(op, st.Slots()) },
			"absent": func(op faultdb.Op) bool { return testdb.Runs(op, st.Look(make([][16]byte, 1))) },
		} {
			var lost losses
			cfg.Hooks = lost.hooks()
			q := w.Queue(kind, cfg)
			w.sendApart(q, numbers(4)...)
			c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lease, PollEvery: lease / 10})
			held := testdb.Take(w, c, 4)
			_, err := q.Cancel(w.Soon(), held[3].ID)
			require.NoError(w, err)
			struck := make(chan struct{})
			w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
				if !meant(op) {
					return faultdb.Fault{}
				}
				select {
				case <-struck:
					if name == "absent" {
						return faultdb.Fault{}
					}
				default:
					close(struck)
				}
				return faultdb.Hang()
			})
			require.NoError(w, held[3].Ack())
			w.within("it hangs", struck)
			pass(3 * lease)
			w.Heal()
			require.Empty(w, lost.but(held[3].ID), "%s of %s", name, kind)
			for _, l := range held[:3] {
				w.ack(l)
			}
			require.NoError(w, c.Shutdown(w.Soon()))
		}
	}
}

// hungClaims makes each statement that returns messages hang while leases are held.
func hungClaims(w *world) {
	w.Within(10 * time.Minute)
	for name, meant := range map[string]func(faultdb.Op, sqlbatch.Queue) bool{"claim": claims, "rescue": rescues, "contents": reads} {
		var lost losses
		q := w.Queue(name, chanq.Config{Hooks: lost.hooks()})
		testdb.Send(w, q, testdb.Texts(numbers(5)...)...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: troubleLease, PrefetchBytes: 512 << 10})
		held := testdb.Take(w, c, 5)
		st := w.Statements(name)
		struck := make(chan struct{})
		strike := sync.OnceFunc(func() { close(struck) })
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if meant(op, st) {
				strike()
				return faultdb.Hang()
			}
			return faultdb.Fault{}
		})
		_, db := w.Connect()
		other := testdb.OpenOn[string](w, db, name, chanq.Config{})
		tx := w.begin(db)
		w.sendTx(other, tx, testdb.Texts(strings.Repeat("x", 600<<10))...)
		require.NoError(w, tx.Commit())
		if name == "rescue" {
			w.Exec("UPDATE chanq_rescue SET lapses = 0, attempts = 1, leased_by = " + w.sqlID(chanq.ID{1}) + " WHERE attempts = 0")
		}
		w.within("it hangs", struck)
		pass(3 * troubleLease)
		w.Heal()
		require.Empty(w, lost.but(), name)
		for _, l := range held {
			w.ack(l)
		}
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

func hungExtend(w *world) {
	st := w.Statements("work")
	w.hungWhileHeld(func(op faultdb.Op) bool { return extends(op, st) }, func(l *chanq.Lease[string]) {
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
		ctx, cancel := context.WithTimeout(context.Background(), w.atOnce())
		defer cancel()
		extended <- stuck.Extend(ctx, time.Hour)
	}()
	require.NoError(w, others[238].Extend(w.Soon(), time.Hour))
	w.soon(began, w.atOnce())
	require.ErrorContains(w, <-extended, "locked")
	began = time.Now()

	// These are settled immediately, in each way; the blocked message is among the acks.
	for i, l := range others[:200] {
		switch {
		case i < 180:
			require.NoError(w, l.Ack())
		case i < 190:
			require.NoError(w, l.Nack(chanq.RetryAfter(time.Hour, nil)))
		default:
			require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
		}
		if i == 90 {
			require.NoError(w, stuck.Ack())
		}
	}
	waits(w, others[:200])
	w.soon(began, w.atOnce())
	require.Equal(w, 10, testdb.Stats(w, q).Scheduled)
	require.Equal(w, 10, testdb.Stats(w, q).Dead)

	// These are extended while the row is locked, and settled later.
	held := others[200:]
	require.NoError(w, held[0].Extend(w.Soon(), troubleLease))
	pass(time.Until(began.Add(2 * troubleLease)))
	began = time.Now()
	for _, l := range held {
		require.NoError(w, l.Ack())
	}
	waits(w, held)
	w.soon(began, w.atOnce())

	unlock()
	if err := stuck.Wait(w.Soon()); err != nil {
		require.ErrorIs(w, err, chanq.ErrLeaseLost)
	}
	for id := range delivered() {
		require.Equal(w, stuck.ID, id)
	}
	require.Empty(w, lost.but(stuck.ID))
}

func doubtfulExtend(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	st := w.Statements("work")
	l := testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Minute}), 1)[0]
	before := l.Deadline()
	hit := w.Strike(w.Broken(false), func(op faultdb.Op) bool { return extends(op, st) })
	var op *chanq.OpError
	require.ErrorAs(w, l.Extend(w.Soon(), time.Hour), &op)
	require.True(w, op.Unknown)
	require.NotEmpty(w, hit.Struck())
	require.WithinDuration(w, before, l.Deadline(), time.Second, "the extension might not have been applied")
	require.NoError(w, l.Extend(w.Soon(), time.Hour))
	end := testdb.Get(w, q, id).LeaseUntil
	require.False(w, l.Deadline().After(end), "%v after", l.Deadline().Sub(end))
	require.True(w, l.Deadline().After(before))
	require.NoError(w, l.Release())
	require.NoError(w, l.Wait(w.Soon()))
}

func lateExtension(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	l := testdb.Lease(w, q, 1, time.Hour)[0]
	e := testdb.Get(w, q, id)
	st := w.Statements("work")
	for _, late := range []sqlbatch.Statement{
		st.Extend([16]byte{}, []sqlbatch.Item{{ID: id, Fence: e.Fence}}, time.Minute),
		st.SkipLocked().Extend([16]byte{}, []sqlbatch.Item{{ID: id, Fence: e.Fence}}, time.Minute),
	} {
		_, err := w.DB.Exec(late.Text, late.Args...)
		require.NoError(w, err)
		require.Equal(w, e.LeaseUntil, testdb.Get(w, q, id).LeaseUntil)
	}
	deadline := l.Deadline()
	require.NoError(w, l.Extend(w.Soon(), time.Minute))
	require.Equal(w, e.LeaseUntil, testdb.Get(w, q, id).LeaseUntil, "Extend never shortens a lease")
	require.WithinDuration(w, deadline, l.Deadline(), time.Second)
	require.NoError(w, l.Ack())
}

// slowExtension: SQLite rewrites the whole row, so other extensions in the same statement would take as long. Two slow extensions must also
// not cost another large message its lease.
func slowExtension(w *world) {
	var lost losses
	q := w.Queue("work", chanq.Config{Hooks: lost.hooks(), Spec: chanq.Spec{MaxBody: 8 << 20}})
	body := strings.Repeat("x", 5<<20)
	huge := testdb.Send(w, q, testdb.Texts(body, body)...)
	testdb.Send(w, q, testdb.Texts(body[:4<<20])...)
	testdb.Send(w, q, testdb.Texts(numbers(20)...)...)
	st := w.Statements("work")
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: troubleLease})
	leases := testdb.Take(w, c, 23)
	var struck atomic.Bool
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !extends(op, st) || !names(op, huge[0]) && !names(op, huge[1]) {
			return faultdb.Fault{}
		}
		struck.Store(true)
		return faultdb.Hang()
	})
	pass(2 * troubleLease)
	require.True(w, struck.Load())
	for _, l := range leases[2:] {
		require.NoError(w, l.Ack())
	}
	waits(w, leases[2:])
	require.Empty(w, lost.but(huge...))
}
