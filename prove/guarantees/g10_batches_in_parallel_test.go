package guarantees

import (
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

// Full batches of one producer are inserted concurrently and committed in order. A database with
// one writer stores them one after another; these tests also hold there.
var parallelBatches = []test{
	{"G10_ABatchIsNotVisibleBeforeThePreviousOne", groupsInOrder},
	{"G10_ABatchThatIsInsertedLateKeepsItsPlace", lateInsert},
	{"G10_ABatchWhoseTransactionBeginsLateKeepsItsPlace", lateBegin},
	{"G10_BatchesKeepTheirOrderWhileAConsumerClaims", groupsWhileClaimed},
	{"G05_BatchesAreStoredOnceAndInOrderWhateverFails", groupsAndFaults},
	{"G05_BatchesAreStoredOnceAndInOrderWhateverHangs", groupsAndHangs},
	{"BatchesWithKeysWaitForTheirPredecessor", keyedGroups},
	{"AProducerWorksWithOneConnection", groupsOnFewConnections},
}

// groupRows is the smallest batch that is inserted ahead of its turn.
const groupRows = 64

var groupConfig = chanq.ProducerConfig{BatchRows: groupRows}

func inserts(op faultdb.Op, q sqlbatch.Queue) bool {
	return op.Kind == faultdb.Exec && (testdb.RunsStore(op, groupRows, q.InOwnTx().EnqueueBegun) || testdb.RunsStore(op, groupRows, q.Enqueue))
}

// sendGroups sends n batches in one call and returns a channel with its error.
func (w *world) sendGroups(p *chanq.Producer[string], n int) <-chan error {
	sent := make(chan error, 1)
	ctx := w.Soon()
	go func() {
		_, err := p.SendBatch(ctx, testdb.Texts(numbers(n*groupRows)...)...)
		sent <- err
	}()
	return sent
}

// requireGroups requires that n batches are stored, each message once and in order.
func (w *world) requireGroups(q *chanq.Queue[string], n int) {
	w.Helper()
	require.Equal(w, chanqadmin.Stats{Ready: n * groupRows}, testdb.Counted(w, q))
	q = testdb.OpenOn[string](w, w.DB, q.Name(), chanq.Config{}) // with a short StatementTimeout a claim's answer might be lost, and its leases with it
	require.Equal(w, numbers(n*groupRows), testdb.Bodies(testdb.Leases(testdb.Lease(w, q, n*groupRows, time.Minute))))
}

func (w *world) oneWriter() bool { return w.Engine.Dialect.Traits().OneWriter }

func groupsInOrder(w *world) {
	q := w.Queue("work", chanq.Config{})
	st := w.Statements("work")
	p := testdb.Produce(w, q, groupConfig)
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	w.Cleanup(release) // before the producer's cleanup
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
		entries := w.peek(q, chanqadmin.StateReady, 10)
		require.Empty(w, entries, "no batch is visible before the first")
	}
	require.LessOrEqual(w, held.Load(), int32(1), "no other batch commits")
	release()
	require.NoError(w, <-sent)
	w.requireGroups(q, 4)
}

// lateInsert holds the first INSERT while the database's clock advances. Batches that are inserted
// meanwhile, where that is possible, are still ordered after it.
func lateInsert(w *world) {
	st := w.Statements("work")
	w.firstIsLate(w.Engine.Dialect.Traits().PlacesBegun, func(op faultdb.Op) bool { return inserts(op, st) })
}

// lateBegin holds the first BEGIN: no other batch gets an earlier position.
func lateBegin(w *world) {
	if w.oneWriter() {
		return // no transaction per batch
	}
	w.firstIsLate(false, func(op faultdb.Op) bool { return op.Kind == faultdb.Begin })
}

// firstIsLate holds the first operation that meant accepts until two others have overtaken it, if
// that is possible, or have had the time to.
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
		require.LessOrEqual(w, met.Load(), int32(1), "no batch overtakes it")
	}
	close(gate)
	require.NoError(w, <-sent)
	w.requireGroups(q, 4)
}

// groupsWhileClaimed is fifo with batches that are inserted ahead; see fifo for SQL Server.
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

// groupsAndFaults makes one operation per run fail: the first, then the second, and so on, until a
// run has fewer operations.
func groupsAndFaults(w *world) {
	for verb, fault := range map[string]faultdb.Fault{
		"deadlock": faultdb.Fail(w.Failure(sqlbatch.RolledBack)),
		"cut":      w.Broken(false), "applied and cut": w.Broken(true),
	} {
		w.eachOperation(verb, 1, chanq.Config{}, func() faultdb.Fault { return fault })
	}
}

// groupsAndHangs makes one operation per run hang for longer than the statement timeout. A driver's
// Commit ignores its context, so it is held for that time.
func groupsAndHangs(w *world) {
	timeout := slowness * 150 * time.Millisecond
	w.eachOperation("hang", 2, chanq.Config{StatementTimeout: timeout}, func() faultdb.Fault {
		gate := make(chan struct{})
		time.AfterFunc(2*timeout, func() { close(gate) })
		return faultdb.Hold(gate)
	})
}

// eachOperation applies a fault to the first operation of sending four batches, then to the
// operation step later, and so on. No message may be lost, stored twice or visible before its
// predecessors.
func (w *world) eachOperation(verb string, step int, cfg chanq.Config, fault func() faultdb.Fault) {
	const groups = 4
	w.Within(8 * time.Minute) // one queue per operation; creating a queue takes a second on Citus
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
			require.GreaterOrEqual(w, n, groups, "faults were injected")
			return
		}
	}
}

type struckSend struct {
	err <-chan error
	hit *testdb.Strike
}

// sendGroupsStruck applies the fault to the nth operation of the producer. Operations of the test
// itself do not count.
func (w *world) sendGroupsStruck(p *chanq.Producer[string], groups, n int, fault faultdb.Fault) struckSend {
	var count atomic.Int32
	hit := w.Strike(fault, func(op faultdb.Op) bool {
		return w.ofSends(op) && int(count.Add(1)) == n+1
	})
	return struckSend{w.sendGroups(p, groups), hit}
}

// ofSends reports whether op is an operation of a producer.
func (w *world) ofSends(op faultdb.Op) bool {
	return op.Kind == faultdb.Begin || op.Kind == faultdb.Commit || op.Kind == faultdb.Exec
}

// requirePrefix requires that the visible messages are a prefix of the sent ones. On SQL Server it
// checks nothing: a read skips locked rows, and might see rows that are committed while it runs.
func (w *world) requirePrefix(q *chanq.Queue[string], groups int) {
	if w.Engine.Dialect == sqlserver.Dialect {
		return
	}
	entries := w.peek(q, chanqadmin.StateReady, groups*groupRows)
	var got []string
	for _, e := range entries {
		got = append(got, string(e.Body))
	}
	if want := numbers(groups * groupRows)[:len(got)]; !slices.Equal(want, got) {
		require.Equal(w, want, got)
	}
}

// keyedGroups checks that a batch is not inserted ahead if its repetition might wait for an open
// transaction of a later batch, and that no batch is inserted ahead of such a batch.
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
	require.NoError(w, <-w.sendGroups(p, 6), "while the application keeps a connection")
	require.Zero(w, begun.Load(), "a batch that cannot be inserted ahead is one statement")
	w.Faults.Inject(nil)
	require.NoError(w, conn.Close())
	require.NoError(w, <-w.sendGroups(p, 6))
	require.Equal(w, chanqadmin.Stats{Ready: 12 * groupRows, Leased: 1}, testdb.Counted(w, q))
}
