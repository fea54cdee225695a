package guarantees

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

var orderedLostLeases = []test{
	{"G06_AConsumerThatStopsReturnsItsSlots", endsReturnsSlots},
	{"G06_OrderlyRestartsCountAsNoCrash", orderlyRestarts},
	{"AnOwnerMarksOnlyWhatItHasRoomFor", marksWithinRoom},
	{"AnOwnerFetchesManyMessagesByOneStatement", fetchesMany},
	{"G12_AMessageThatLostALeaseAndIsLockedDelaysItselfOnly", lockedLapsed},
	{"AMessageDeadAfterMaxCrashesIsReportedAlikeOnOrderedAndPlainQueues", killedReports},
}

func (w *world) count(query string) (n int) {
	w.Helper()
	require.NoError(w, w.DB.QueryRow(query).Scan(&n))
	return n
}

// marked returns the number of marked messages and the number of messages with expired leases.
func (w *world) marked() (marked, lapsed int) {
	return w.count("SELECT COUNT(*) FROM chanq_work WHERE leased_by IS NOT NULL"), w.count("SELECT COUNT(*) FROM chanq_work WHERE lapses > 0")
}

// endsReturnsSlots also covers a consumer that holds nothing when it stops.
func endsReturnsSlots(w *world) {
	q := w.keys(chanq.Config{})
	for range 3 {
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		testdb.Send(w, q, keyed("a", 1, 1)...)
		w.ack(testdb.Take(w, c, 1)[0])
		w.pass(2 * time.Second)
		require.NoError(w, c.Shutdown(w.Soon()))
		require.Zero(w, w.count("SELECT COUNT(*) FROM chanq__slots WHERE consumer IS NOT NULL"))
	}
}

// orderlyRestarts: no process dies and no lease expires.
func orderlyRestarts(w *world) {
	w.Within(10 * time.Minute)
	q := w.keys(chanq.Config{})
	ms, _ := manyKeys(300, 1)
	testdb.Send(w, q, ms...)
	w.Exec("UPDATE chanq__slots SET old = 9000000000000000000") // as if the previous owner had died
	for range 4 {
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		w.ack(testdb.Take(w, c, 1)[0])
		w.pass(time.Second)
		require.NoError(w, c.Shutdown(w.Soon()))
		marked, lapsed := w.marked()
		require.Zero(w, marked)
		require.Zero(w, lapsed)
	}
}

// marksWithinRoom: a mark counts as an attempt, and as an expired lease if the process dies.
func marksWithinRoom(w *world) {
	q := w.keys(chanq.Config{})
	ms, _ := manyKeys(1000, 1)
	testdb.Send(w, q, ms...)
	w.Exec("UPDATE chanq__slots SET old = 9000000000000000000")
	testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 100})
	w.Eventually("some are marked", func() bool { marked, _ := w.marked(); return marked > 0 })
	w.pass(10 * time.Second)
	marked, _ := w.marked()
	require.LessOrEqual(w, marked, 100)
}

func fetchesMany(w *world) {
	q := w.keys(chanq.Config{})
	const n = 1000
	ms, _ := manyKeys(n, 1)
	testdb.Send(w, q, ms...)
	w.Exec("UPDATE chanq__slots SET old = 9000000000000000000")
	faults, db := w.Connect()
	fetch, fetches := w.orderedStatements().Fetch([16]byte{}, nil, nil).Text, atomic.Int64{}
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if op.Kind == faultdb.Query && op.Text == fetch {
			fetches.Add(1)
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, testdb.OpenOn[string](w, db, "work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}), chanq.ConsumerConfig{})
	for range n {
		require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
	}
	require.Less(w, fetches.Load(), int64(n/4))
}

func lockedLapsed(w *world) {
	w.skipWithoutRowLocks()
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 1}})
	id := testdb.Send(w, q, keyed("lapsed", 1, 1)...)[0]
	w.Exec("UPDATE chanq_work SET attempts = 1, lapses = 1 WHERE id = " + w.sqlID(id))
	unlock := w.lock("work", id)
	defer unlock()
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.pass(3 * time.Second)
	for i := range 3 {
		testdb.Send(w, q, keyed(fmt.Sprint("other", i), 1, 1)...)
		w.ack(w.next(c, fmt.Sprintf("other%d/1", i)))
		w.pass(10 * time.Second)
	}
	unlock()
	w.ack(w.next(c, "lapsed/1"))
}

func killedReports(w *world) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		name := fmt.Sprint("kind", kind)
		events := make(chan chanq.DeadEvent, 1)
		q := w.Queue(name, chanq.Config{Spec: chanq.Spec{Kind: kind}, Hooks: chanq.Hooks{Dead: func(e chanq.DeadEvent) { events <- e }}})
		m := chanq.Message[string]{Body: "x"}
		if kind == chanq.KindOrdered {
			m.Key = "key"
		}
		id := testdb.Send(w, q, m)[0]
		w.Exec("UPDATE chanq_" + name + " SET attempts = 8, lapses = 8")
		testdb.Start(w, q, chanq.ConsumerConfig{})
		e := <-events
		require.Equal(w, m.Key, e.Key)
		require.Equal(w, 8, e.Attempt)
		require.Contains(w, testdb.Get(w, q, id).LastError, "chanq: 8 attempts; the last 8 leases expired")
	}
}
