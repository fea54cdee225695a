package guarantees

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var buffers = []test{
	{"G11_PrefetchIsBoundedInBytes", prefetchBytes},
	{"G11_TheBacklogOfSettlesIsBoundedAndPausesClaims", settleBacklog},
	{"AClaimAsksForNoMoreThanReadersTookLately", adaptive},
	{"AConsumerUsesThreeConnectionsAtMost", threeConnections},
}

func prefetchBytes(w *world) {
	q := w.Queue("work", chanq.Config{})
	messages := testdb.Texts(numbers(64)...)
	for i := range messages {
		messages[i].Body = strings.Repeat("x", 10_000)
	}
	testdb.Send(w, q, messages...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{PrefetchBytes: 50_000})
	for range 64 {
		l := testdb.Take(w, c, 1)[0]
		require.NoError(w, l.Ack())
		require.LessOrEqual(w, c.Stats().Buffered, 5)
	}
	require.NoError(w, c.Flush(w.Soon()))
	require.GreaterOrEqual(w, c.Stats().Claims, int64(64/5), "each claim was of at most 5 messages, including the first")
}

func settleBacklog(w *world) {
	const (
		backlog = 4096 // the backlog of a consumer with the default Prefetch
		count   = backlog + 1100
	)
	q := w.Queue("work", chanq.Config{})
	for range 4 {
		testdb.Send(w, q, testdb.Texts(make([]string, count/4)...)...)
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	leases := testdb.Take(w, c, count)
	st := w.Statements("work")
	deadlock := w.Failure(sqlbatch.RolledBack)
	var tried, claimed atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case claims(op, st):
			claimed.Add(1)
		case acks(op, st):
			tried.Add(1)
			return faultdb.Fail(deadlock)
		}
		return faultdb.Fault{}
	})
	var acked atomic.Int32
	done := make(chan error, 1)
	go func() {
		for _, l := range leases {
			if err := l.Ack(); err != nil {
				done <- err
				return
			}
			acked.Add(1)
		}
		done <- nil
	}()
	w.Eventually("the backlog is full", func() bool { return c.Stats().Settling == backlog })
	require.Less(w, acked.Load(), int32(count))
	require.Empty(w, done, "Ack waits for room")
	claimed.Store(0)
	const meanwhile = 4
	for range meanwhile {
		testdb.Send(w, q, testdb.Texts("not claimed meanwhile")...)
		from := tried.Load()
		w.Eventually("the settle is repeated", func() bool { return tried.Load() > from+1 })
	}
	require.LessOrEqual(w, claimed.Load(), int32(1), "a full backlog pauses claims, except a claim that has begun")

	w.Faults.Inject(nil)
	require.NoError(w, <-done)
	require.Equal(w, "not claimed meanwhile", testdb.Take(w, c, meanwhile)[0].Body)
	require.NoError(w, c.Flush(w.Soon()))
	require.EqualValues(w, count, c.Stats().Acked)
	require.Equal(w, chanqadmin.Stats{Leased: meanwhile}, testdb.Counted(w, q))
}

func adaptive(w *world) {
	const count = 1600 // with so many, claims may become small a few times, when the machine stalls
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(count)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("the buffer is filled", func() bool { return c.Stats().Buffered == 16 })
	require.Equal(w, chanqadmin.Stats{Ready: count - 16, Leased: 16}, testdb.Counted(w, q), "a replica whose reader takes nothing does not hoard")
	for range count - 16 {
		l := testdb.Take(w, c, 1)[0]
		require.NoError(w, l.Ack())
	}
	require.Less(w, c.Stats().Claims, int64(count/16), "claims grow with the pace of the reader")
}

func threeConnections(w *world) {
	q := w.Queue("work", chanq.Config{})
	other := w.Queue("other", chanq.Config{})
	const most = 3 + 1         // Open also uses one connection of the *sql.DB at a time
	opened, tries := most+1, 5 // on a busy machine a statement of 500 ms causes one more connection
	if w.Engine.Bubble {
		tries = 1
	}
	for try := 1; try <= tries && opened > most; try++ {
		testdb.Send(w, q, testdb.Texts(numbers(200)...)...)
		faults, db := w.Connect()
		c := testdb.Start(w, testdb.OpenOn[string](w, db, "work", chanq.Config{}), chanq.ConsumerConfig{LeaseFor: steadyLease, Prefetch: 50})
		to := testdb.OpenOn[string](w, db, "other", chanq.Config{})
		moved := make(chan error, 1)
		go func() { moved <- chanq.Pipe(c, to, 4, passOn) }()
		w.Eventually("all are moved", func() bool { return testdb.Stats(w, other).Ready == 200*try })
		c.Stop()
		require.NoError(w, <-moved)
		_, opened = faults.Conns()
		require.NoError(w, c.Shutdown(w.Soon()))
	}
	require.LessOrEqual(w, opened, most)
}

func passOn(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
	return []chanq.Message[string]{{Body: l.Body}}, nil
}
