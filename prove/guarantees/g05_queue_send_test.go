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
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Queue.Send.
var queueSend = []test{
	{"G05_QueueSendStoresOnceWhateverFails", directOnce},
	{"QueueSendOfFewIsOneStatement", directOne},
	{"QueueSendOfManyStoresAllOrNone", directAll},
	{"EachStatementOfQueueSendHasItsOwnTime", directSlow},
	{"QueueSendReturnsWithItsContextAndReportsWhatMightBeStored", directContext},
	{"QueueSendReturnsWhatIsRejected", directRejected},
	{"QueueSendNotifiesAndReportsWhatItStored", directWakes},
	{"G10_QueueSendKeepsTheOrderOfKeys", directOrdered},
}

// many returns more messages than one statement stores.
func many() []chanq.Message[string] { return testdb.Texts(numbers(chanq.DefaultBatchRows + 1)...) }

// directOnce makes each operation of a send fail, in each way.
func directOnce(w *world) {
	named := chanq.NewID()
	for name, ms := range map[string][]chanq.Message[string]{
		"one":  testdb.Texts("a"),
		"few":  testdb.Texts("a", "b", "c"),
		"keys": {{Body: "a", DedupKey: "k"}, {ID: named, Body: "b"}, {Body: "c", DedupKey: "k"}},
		"many": many(),
	} {
		stored := len(ms)
		if name == "keys" {
			stored = 2
		}
		for what, fault := range map[string]faultdb.Fault{
			"rolledback": faultdb.Fail(w.Failure(sqlbatch.RolledBack)), "refused": faultdb.Fail(w.Failure(sqlbatch.Refused)),
			"lost": w.Broken(false), "applied": w.Broken(true),
		} {
			q := w.Queue(name+"_"+what, chanq.Config{})
			n := 0
			for ; ; n++ {
				hit := w.StrikeNth(n, fault)
				receipts, err := q.Send(w.Soon(), ms...)
				struck := hit.Struck()
				w.Faults.Inject(nil)
				require.NoError(w, err, "%s %s", q.Name(), struck)
				require.Len(w, receipts, len(ms))
				require.Equal(w, chanqadmin.Stats{Ready: stored}, testdb.Counted(w, q), "%s %s", q.Name(), struck)
				if name == "keys" {
					require.Equal(w, []chanq.Receipt{{ID: receipts[0].ID}, {ID: named}, {ID: receipts[0].ID, Duplicate: true}}, receipts)
				}
				for _, l := range testdb.Lease(w, q, stored, time.Minute) {
					require.NoError(w, l.Ack())
				}
				if struck == "" {
					break
				}
			}
			require.Positive(w, n)
		}
	}
}

func directOne(w *world) {
	q := w.Queue("work", chanq.Config{})
	st := w.Statements("work")
	for _, ms := range [][]chanq.Message[string]{testdb.Texts("a"), testdb.Texts(numbers(chanq.DefaultBatchRows)...)} {
		var mu sync.Mutex
		stored, others := 0, 0
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case op.Kind == faultdb.Exec && op.Text == st.Enqueue(make([]sqlbatch.Row, len(ms))).Text:
				stored++
			case op.Kind == faultdb.Begin, op.Kind == faultdb.Commit, op.Kind == faultdb.Exec, op.Kind == faultdb.Query:
				others++
			}
			return faultdb.Fault{}
		})
		_, err := q.Send(w.Soon(), ms...)
		w.Faults.Inject(nil)
		require.NoError(w, err)
		require.Equal(w, []int{1, 0}, []int{stored, others})
	}
	receipts, err := q.Send(w.Soon())
	require.NoError(w, err)
	require.Empty(w, receipts)
}

// directSlow makes each of several statements take nearly as long as the statement timeout, on the clock of a bubble.
func directSlow(w *world) {
	if !w.Engine.Bubble {
		w.Skip("the test would take minutes")
	}
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxBody: 3 << 20}})
	var begun, stored atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case op.Kind == faultdb.Begin:
			begun.Add(1)
		case op.Kind == faultdb.Exec || op.Kind == faultdb.Query:
			done := make(chan struct{})
			time.AfterFunc(20*time.Second, func() { close(done); stored.Add(1) })
			return faultdb.Hold(done)
		}
		return faultdb.Fault{}
	})
	ms := make([]chanq.Message[string], 8)
	for i := range ms {
		ms[i].Body = strings.Repeat("x", 3<<20)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	_, err := q.Send(ctx, ms...)
	w.Heal()
	require.NoError(w, err)
	require.EqualValues(w, 1, begun.Load(), "no attempt was abandoned")
	require.EqualValues(w, 8, stored.Load())
	require.Equal(w, 8, testdb.Counted(w, q).Ready)
}

func directAll(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxBody: 3 << 20}})
	_, db := w.Connect()
	elsewhere := testdb.OpenOn[string](w, db, "work", chanq.Config{}) // for consumers, whose statements are not counted
	for _, ms := range [][]chanq.Message[string]{many(), testdb.Texts(strings.Repeat("a", 3<<20), strings.Repeat("b", 3<<20))} {
		ctx, cancel := context.WithCancel(w.Soon())
		statements := 0
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if op.Kind != faultdb.Exec && op.Kind != faultdb.Query {
				return faultdb.Fault{}
			}
			if statements++; statements == 2 {
				cancel()
				return faultdb.Fail(w.Failure(sqlbatch.Refused))
			}
			return faultdb.Fault{}
		})
		_, err := q.Send(ctx, ms...)
		w.Faults.Inject(nil)
		var op *chanq.OpError
		require.ErrorAs(w, err, &op)
		require.False(w, op.Unknown)
		require.Zero(w, testdb.Counted(w, q), "none of them is stored")
		receipts, err := q.Send(w.Soon(), ms...)
		require.NoError(w, err)
		got := testdb.Leases(testdb.Lease(w, elsewhere, len(ms), time.Minute))
		for i, l := range got {
			require.Equal(w, receipts[i].ID, l.ID)
			require.Equal(w, ms[i].Body, l.Body)
			require.NoError(w, l.Ack())
		}
		w.Eventually("all are acked", func() bool { return testdb.Empty(w, q) })
	}
}

func directContext(w *world) {
	q := w.Queue("work", chanq.Config{})
	for _, c := range []struct {
		fault   faultdb.Fault
		unknown bool
	}{
		{faultdb.Fail(w.Failure(sqlbatch.RolledBack)), false},
		{faultdb.Fail(w.Failure(sqlbatch.Refused)), false},
		{w.Broken(false), true},
		{w.Broken(true), true},
	} {
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(w.Soon())
		tried := sync.OnceFunc(func() { time.AfterFunc(2*time.Second, func() { cancel(why) }) }) // not before the first try
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if op.Kind == faultdb.Exec || op.Kind == faultdb.Query {
				tried()
				return c.fault
			}
			return faultdb.Fault{}
		})
		receipts, err := q.Send(ctx, testdb.Texts("a")...)
		w.Faults.Inject(nil)
		var op *chanq.OpError
		require.ErrorAs(w, err, &op)
		require.Equal(w, c.unknown, op.Unknown)
		require.Equal(w, "send", op.Op)
		require.Equal(w, receipts[0].ID, op.ID)
		require.ErrorIs(w, err, why)
		require.ErrorContains(w, err, "the last try: ")
		again, err := q.Send(w.Soon(), chanq.Message[string]{ID: receipts[0].ID, Body: "a"})
		require.NoError(w, err)
		require.Equal(w, receipts, again)
		require.Equal(w, chanqadmin.Stats{Ready: 1}, testdb.Counted(w, q), "once")
		require.NoError(w, testdb.Lease(w, q, 1, time.Minute)[0].Ack())
		w.Eventually("it is acked", func() bool { return testdb.Empty(w, q) })
	}
	ended, cancel := context.WithCancel(w.Soon())
	cancel()
	_, err := q.Send(ended, testdb.Texts("a")...)
	require.ErrorIs(w, err, context.Canceled)
	var op *chanq.OpError
	require.ErrorAs(w, err, &op)
	require.False(w, op.Unknown)
	require.Zero(w, testdb.Counted(w, q))
}

func directRejected(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxBody: 3}})
	before := w.Faults.Ops()
	_, err := q.Send(w.Soon(), chanq.Msg("a"), chanq.Msg("long"))
	require.ErrorIs(w, err, chanq.ErrTooLarge)
	require.Equal(w, before, w.Faults.Ops(), "no database call was made")
	for _, class := range []sqlbatch.Class{sqlbatch.BadRow, sqlbatch.Permanent} {
		rejected := w.Failure(class)
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if op.Kind == faultdb.Exec {
				return faultdb.Fail(rejected)
			}
			return faultdb.Fault{}
		})
		_, err := q.Send(w.Soon(), chanq.Msg("a"))
		w.Faults.Inject(nil)
		var op *chanq.OpError
		require.ErrorAs(w, err, &op, class)
		require.False(w, op.Unknown)
		require.ErrorIs(w, err, w.Failure(class))
	}
	require.NoError(w, chanqadmin.Drop(w.Soon(), w.Tables(), "work", chanq.Config{}, chanqadmin.Change{}))
	_, err = q.Send(w.Soon(), chanq.Msg("a"))
	require.ErrorIs(w, err, chanq.ErrNoSchema)
}

func directWakes(w *world) {
	b := &board{}
	var mu sync.Mutex
	var events []chanq.SentEvent
	q := w.Queue("work", chanq.Config{Notifier: b, Hooks: chanq.Hooks{Sent: func(e chanq.SentEvent) {
		mu.Lock()
		defer mu.Unlock()
		e.Took = 0
		events = append(events, e)
	}}})
	c := testdb.Start(w, q, seldom)
	w.asleep(c, b)
	before := b.notified()
	_, err := q.Send(w.Soon(), chanq.Message[string]{Body: "a", DedupKey: "k"}, chanq.Msg("bc"), chanq.Message[string]{Body: "d", DedupKey: "k"})
	require.NoError(w, err)
	require.Equal(w, before+1, b.notified())
	require.Equal(w, []string{"a", "bc"}, testdb.Bodies(testdb.Take(w, c, 2)))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(w, []chanq.SentEvent{{Queue: "work", Messages: 2, Duplicates: 1, Bytes: 4}}, events)
}

func directOrdered(w *world) {
	q := w.keys(chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	ms := keyed("a", 1, chanq.DefaultBatchRows+2)
	_, err := q.Send(w.Soon(), ms...)
	require.NoError(w, err)
	_, err = q.Send(w.Soon(), keyed("a", len(ms)+1, len(ms)+2)...)
	require.NoError(w, err)
	for i := range len(ms) + 2 {
		require.NoError(w, w.next(c, keyed("a", i+1, i+1)[0].Body).Ack())
	}
}
