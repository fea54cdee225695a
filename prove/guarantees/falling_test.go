package guarantees

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
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

// falls has the driver panic in a kind of statement of a consumer's, first of a plain and then of an
// ordered queue.
func (w *world) falls(plain, ordered func(faultdb.Op, sqlbatch.Queue) bool) {
	w.Helper()
	w.fallsIn(w.Queue("plain", chanq.Config{}), func(op faultdb.Op) bool { return plain(op, w.Statements("plain")) })
	w.fallsIn(w.keys(chanq.Config{}), func(op faultdb.Op) bool { return ordered(op, w.orderedStatements()) })
}

func (w *world) fallsIn(q *chanq.Queue[string], meant func(faultdb.Op) bool) {
	w.Helper()
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if meant(op) {
			return faultdb.Panic(errors.New("aargh"))
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
	var held []*chanq.Lease[string]
	for open := true; open; {
		var l *chanq.Lease[string]
		select {
		case l, open = <-c.C():
		case <-w.Soon().Done():
			require.Fail(w, "the consumer goes on")
		}
		if !open {
			break
		}
		if held = append(held, l); len(held) == 1 {
			require.NoError(w, l.Ack()) // the other one is extended
		}
	}
	<-c.Done()
	w.Faults.Inject(nil)
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
