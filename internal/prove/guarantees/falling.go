package guarantees

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// What a driver that panics does: the consumer that meets it ends with an error, nothing
// hangs, and the others on the *sql.DB go on.
var falling = []test{
	{"APanicOfTheDriverInAClaimEndsTheConsumer", func(w *world) { w.falls(claims, claimsSlots) }},
	{"APanicOfTheDriverInALookEndsTheConsumer", func(w *world) {
		w.falls(func(op faultdb.Op, q sqlbatch.Queue) bool { return testdb.Runs(op, q.Survey()) },
			func(op faultdb.Op, q sqlbatch.Queue) bool { return testdb.Runs(op, q.Slots(nil)) })
	}},
	{"APanicOfTheDriverInAnExtensionEndsTheConsumer", func(w *world) { w.falls(extends, extends) }},
	{"APanicOfTheDriverInASettleEndsTheConsumer", func(w *world) { w.falls(acks, acks) }},
	{"APanicOfTheDriverInAHeartbeatEndsTheConsumer", func(w *world) {
		joins := func(op faultdb.Op, q sqlbatch.Queue) bool { return testdb.Runs(op, q.Join(sqlbatch.Member{})) }
		w.falls(joins, joins)
	}},
}

// falls has the driver panic once in a statement of a consumer, first of a plain and then of an
// ordered queue.
func (w *world) falls(plain, ordered func(faultdb.Op, sqlbatch.Queue) bool) {
	w.Helper()
	w.fallsIn(w.Queue("plain", chanq.Config{}), func(op faultdb.Op) bool { return plain(op, w.Statements("plain")) })
	w.fallsIn(w.keys(chanq.Config{}), func(op faultdb.Op) bool { return ordered(op, w.orderedStatements()) })
}

func (w *world) fallsIn(q *chanq.Queue[string], meant func(faultdb.Op) bool) {
	w.Helper()
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	strike := w.Strike(faultdb.Panic(errors.New("aargh")), meant)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
	var held []*chanq.Lease[string]
	for l := range c.C() {
		if held = append(held, l); len(held) == 1 {
			require.NoError(w, l.Ack()) // the other one is extended
		}
	}
	<-c.Done()
	require.NotEmpty(w, strike.Struck())
	require.ErrorContains(w, c.Err(), "aargh")
	for _, l := range held {
		_ = l.Release()
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	again := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("the others go on", func() bool {
		select {
		case l := <-again.C():
			w.ack(l)
		case <-time.After(time.Millisecond):
		}
		return testdb.Counted(w, q) == (chanq.Stats{})
	})
	require.NoError(w, again.Shutdown(w.Soon()))
}
