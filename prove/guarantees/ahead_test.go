package guarantees

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Full groups of one producer are inserted side by side, and committed in order. A
// database with one writer stores them one after another: these tests hold there, too.
var ahead = []test{
	{"G10_ABatchIsNotSeenBeforeItsPredecessor", groupsInOrder},
	{"G10_ABatchThatIsInsertedLateKeepsItsPlace", lateInsert},
	{"G10_ABatchWhoseTransactionBeginsLateKeepsItsPlace", lateBegin},
	{"G10_BatchesKeepTheirOrderWhileAConsumerClaims", groupsWhileClaimed},
	{"G05_BatchesAreStoredOnceAndInOrderWhateverFails", groupsAndFaults},
	{"G05_BatchesAreStoredOnceAndInOrderWhateverHangs", groupsAndHangs},
	{"BatchesWithKeysWaitForTheirPredecessor", keyedGroups},
	{"AProducerNeedsNoConnectionToSpare", groupsOnFewConnections},
	{"CloseGivesUpWhatWaitsForTheBatchBefore", closeBehindAGroup},
}

// groupRows is the least that goes ahead.
const groupRows = 64

var groupConfig = chanq.ProducerConfig{BatchRows: groupRows}

func inserts(op faultdb.Op, q sqlbatch.Queue) bool {
	rows := make([]sqlbatch.Row, groupRows)
	return op.Kind == faultdb.Exec && (testdb.Runs(op, q.InOwnTx().EnqueueBegun(rows)) || testdb.Runs(op, q.Enqueue(rows)))
}

// sendGroups sends n groups by one call, and returns what becomes of it.
func (w *world) sendGroups(p *chanq.Producer[string], n int) <-chan error {
	sent := make(chan error, 1)
	ctx := w.Soon()
	go func() {
		_, err := p.SendBatch(ctx, testdb.Texts(numbers(n*groupRows)...)...)
		sent <- err
	}()
	return sent
}

// requireGroups requires that n groups are there, each message once and in its place.
func (w *world) requireGroups(q *chanq.Queue[string], n int) {
	w.Helper()
	require.Equal(w, chanqadmin.Stats{Ready: n * groupRows}, testdb.Counted(w, q))
	require.Equal(w, numbers(n*groupRows), testdb.Bodies(testdb.Leases(testdb.Lease(w, q, n*groupRows, time.Minute))))
}

func (w *world) oneWriter() bool { return w.Engine.Dialect.Traits().OneWriter }

func groupsInOrder(w *world) {
	q := w.Queue("work", chanq.Config{})
	st := w.Statements("work")
	p := testdb.Produce(w, q, groupConfig)
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	w.Cleanup(release) // before the producer's
	var inserted, held atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if inserts(op, st) {
			inserted.Add(1)
		}
		if (op.Kind == faultdb.Commit || w.oneWriter() && inserts(op, st)) && held.Add(1) == 1 {
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	sent := w.sendGroups(p, 4)
	w.Eventually("the first group is at its commit", func() bool { return held.Load() > 0 })
	if !w.oneWriter() {
		w.Eventually("two more are inserted", func() bool { return inserted.Load() == 3 })
		entries, err := testdb.Peek(w.Soon(), q, chanqadmin.StateReady, 10)
		require.NoError(w, err)
		require.Empty(w, entries, "none is seen before the first")
	}
	require.LessOrEqual(w, held.Load(), int32(1), "no other commits")
	release()
	require.NoError(w, <-sent)
	w.requireGroups(q, 4)
}

// lateInsert holds the first INSERT while the database's clock goes on: what is inserted
// meanwhile comes after it nevertheless, where it may be inserted at all.
func lateInsert(w *world) {
	st := w.Statements("work")
	w.firstIsLate(w.Engine.Dialect.Traits().PlacesBegun, func(op faultdb.Op) bool { return inserts(op, st) })
}

// lateBegin holds the first BEGIN: nothing has a place before it.
func lateBegin(w *world) {
	if w.oneWriter() {
		return // which begins no transaction for a group
	}
	w.firstIsLate(false, func(op faultdb.Op) bool { return op.Kind == faultdb.Begin })
}

// firstIsLate holds the first of the operations that are meant until two others have
// overtaken it, if they may, or had the time to.
func (w *world) firstIsLate(overtaken bool, meant func(faultdb.Op) bool) {
	q := w.Queue("work", chanq.Config{})
	st := w.Statements("work")
	p := testdb.Produce(w, q, groupConfig)
	gate := make(chan struct{})
	var met, inserted atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if inserts(op, st) {
			inserted.Add(1)
		}
		if meant(op) && met.Add(1) == 1 {
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	sent := w.sendGroups(p, 4)
	w.Eventually("the first group is held", func() bool { return met.Load() > 0 })
	if overtaken {
		w.Eventually("others have overtaken it", func() bool { return inserted.Load() == 3 })
	}
	began := time.Now()
	w.Eventually("others had the time, and the clock is later", func() bool { return time.Since(began) > 50*time.Millisecond })
	if !overtaken {
		require.LessOrEqual(w, met.Load(), int32(1), "none overtakes it")
	}
	close(gate)
	require.NoError(w, <-sent)
	w.requireGroups(q, 4)
}

// groupsWhileClaimed is fifo with groups that go ahead; see there for SQL Server.
func groupsWhileClaimed(w *world) {
	const groups = 40
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, groupConfig)
	sent := w.sendGroups(p, groups)
	if w.Engine.Dialect == sqlserver.Dialect {
		require.NoError(w, <-sent)
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	var got []string
	for _, l := range testdb.Take(w, c, groups*groupRows) {
		got = append(got, l.Body)
		require.NoError(w, l.Ack())
	}
	require.Equal(w, numbers(groups*groupRows), got)
}

// groupsAndFaults fails one operation after another: the first, the second, and so on,
// until a run has fewer.
func groupsAndFaults(w *world) {
	for verb, fault := range map[string]faultdb.Fault{
		"deadlock": faultdb.Fail(w.Failure(sqlbatch.RolledBack)),
		"cut":      w.Broken(false), "applied and cut": w.Broken(true),
	} {
		w.eachOperation(verb, 1, chanq.Config{}, func() faultdb.Fault { return fault })
	}
}

// groupsAndHangs has one operation after another hang for longer than a statement may
// take. The commit of a driver does not look at a context: it is held until then.
func groupsAndHangs(w *world) {
	timeout := slowness * 150 * time.Millisecond
	w.eachOperation("hang", 2, chanq.Config{StatementTimeout: timeout}, func() faultdb.Fault {
		gate := make(chan struct{})
		time.AfterFunc(2*timeout, func() { close(gate) })
		return faultdb.Hold(gate)
	})
}

// eachOperation strikes the first operation of sending four groups, then one that is step
// later, and so on. Nothing may be lost, nor stored twice, nor be seen before what was sent
// before it.
func (w *world) eachOperation(verb string, step int, cfg chanq.Config, fault func() faultdb.Fault) {
	const groups = 4
	w.Within(8 * time.Minute) // a queue for each operation, of which each takes a second to make on Citus
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for n := 0; ; n += step {
		name := "work_" + strconv.Itoa(len(verb)) + "_" + strconv.Itoa(n)
		q := w.Queue(name, cfg)
		p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: groupRows})
		sent := w.sendGroupsStruck(p, groups, n, fault())
		for done := false; !done; {
			select {
			case err := <-sent.err:
				require.NoError(w, err, "%s at %d, %s", verb, n, sent.hit.Struck())
				done = true
			case <-look.C:
				w.requirePrefix(q, groups)
			}
		}
		w.Heal()
		require.NoError(w, p.Close(w.Soon()))
		w.requireGroups(q, groups)
		if sent.hit.Struck() == "" {
			require.GreaterOrEqual(w, n, groups, "operations were struck")
			return
		}
	}
}

type struckSend struct {
	err <-chan error
	hit *testdb.Strike
}

// sendGroupsStruck strikes the nth of the producer's operations: those of the test itself
// are others.
func (w *world) sendGroupsStruck(p *chanq.Producer[string], groups, n int, fault faultdb.Fault) struckSend {
	var count atomic.Int32
	hit := w.Strike(fault, func(op faultdb.Op) bool {
		return w.ofSends(op) && int(count.Add(1)) == n+1
	})
	return struckSend{w.sendGroups(p, groups), hit}
}

// ofSends reports an operation of a producer.
func (w *world) ofSends(op faultdb.Op) bool {
	return op.Kind == faultdb.Begin || op.Kind == faultdb.Commit || op.Kind == faultdb.Exec
}

// requirePrefix requires that what is seen is a beginning of what was sent. (On SQL Server
// a look passes over what is locked, and may see what is committed while it goes on.)
func (w *world) requirePrefix(q *chanq.Queue[string], groups int) {
	if w.Engine.Dialect == sqlserver.Dialect {
		return
	}
	entries, err := testdb.Peek(w.Soon(), q, chanqadmin.StateReady, groups*groupRows)
	require.NoError(w, err)
	var got []string
	for _, e := range entries {
		got = append(got, string(e.Body))
	}
	if want := numbers(groups * groupRows)[:len(got)]; !slices.Equal(want, got) {
		require.Equal(w, want, got)
	}
}

// keyedGroups: a group of which a repetition might wait for what is open behind it does not
// go ahead, and nothing goes ahead of it.
func keyedGroups(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, groupConfig)
	var begun atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if op.Kind == faultdb.Begin {
			begun.Add(1)
		}
		return faultdb.Fault{}
	})
	ms := testdb.Texts(numbers(4 * groupRows)...)
	for i := range ms {
		if i%2 == 0 {
			ms[i].DedupKey = fmt.Sprint("key ", i)
		} else {
			ms[i].ID = chanq.NewID()
		}
	}
	_, err := p.SendBatch(w.Soon(), ms...)
	require.NoError(w, err)
	require.Zero(w, begun.Load())
	require.Equal(w, chanqadmin.Stats{Ready: 4 * groupRows}, testdb.Counted(w, q))
}

func groupsOnFewConnections(w *world) {
	q := w.Queue("work", chanq.Config{})
	w.DB.SetMaxOpenConns(2)
	p := testdb.Produce(w, q, groupConfig)
	_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "connected"})
	require.NoError(w, err)
	w.Hold(q.Name(), 1, time.Minute)
	conn, err := w.DB.Conn(w.Soon())
	require.NoError(w, err)
	var begun atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if op.Kind == faultdb.Begin {
			begun.Add(1)
		}
		return faultdb.Fault{}
	})
	require.NoError(w, <-w.sendGroups(p, 6), "with a connection that the application keeps")
	require.Zero(w, begun.Load(), "what cannot go ahead is one statement")
	w.Faults.Inject(nil)
	require.NoError(w, conn.Close())
	require.NoError(w, <-w.sendGroups(p, 6))
	require.Equal(w, chanqadmin.Stats{Ready: 12 * groupRows, Leased: 1}, testdb.Counted(w, q))
}

func closeBehindAGroup(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, groupConfig)
	gate := make(chan struct{})
	var held atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if w.ofSends(op) && held.Add(1) == 1 {
			return faultdb.Stick(gate)
		}
		return faultdb.Fault{}
	})
	for _, m := range testdb.Texts(numbers(4 * groupRows)...) {
		p.C() <- m
	}
	w.Eventually("the first group is stuck", func() bool { return held.Load() > 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	var unsent *chanq.UnsentError[string]
	require.ErrorAs(w, p.Close(ctx), &unsent)
	var bodies []string
	for _, u := range unsent.Unsent {
		bodies = append(bodies, u.Message.Body)
	}
	require.Equal(w, numbers(4*groupRows), bodies, "in the order in which they were sent")
	close(gate)
	require.NoError(w, p.Close(w.Soon()), "its goroutines have ended")
	again := testdb.Produce(w, q, groupConfig)
	for _, u := range unsent.Unsent {
		again.C() <- u.Message
	}
	require.NoError(w, again.Close(w.Soon()))
	require.Equal(w, chanqadmin.Stats{Ready: 4 * groupRows}, testdb.Counted(w, q))
}
