package guarantees

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Consumers as the database records them.
var consumerRecords = []test{
	{"AConsumerIsRecordedFromItsStartUntilItStops", consumerForItsLife},
	{"AConsumerWhoseShutdownTimedOutIsRecordedUntilItsLeasesExpire", gaveUpConsumer},
	{"NothingWaitsForTheMembership", consumerHangs},
	{"ARefusedMembershipIsReportedOnce", consumerRefused},
}

func consumers[T any](w *world, q *chanq.Queue[T]) []chanqadmin.ConsumerInfo {
	w.Helper()
	list, err := testdb.Admin(q).Consumers(w.Soon())
	require.NoError(w, err)
	return list
}

func consumerForItsLife(w *world) {
	q, other := w.Queue("work", chanq.Config{}), w.Queue("other", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	require.Empty(w, consumers(w, q))
	a := testdb.Start(w, q, chanq.ConsumerConfig{Name: "billing", LeaseFor: 5 * steadyLease})
	l := testdb.Take(w, a, 1)[0]
	w.Eventually("it has joined", func() bool { return len(consumers(w, q)) == 1 })
	testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("another consumer has joined", func() bool { return len(consumers(w, q)) == 2 })
	list := consumers(w, q)
	host, err := os.Hostname()
	require.NoError(w, err)
	require.Equal(w, "billing", list[0].Name, "in the order of joining")
	for _, m := range list {
		require.Equal(w, host, m.Host)
		require.Equal(w, os.Getpid(), m.Process)
		require.WithinDuration(w, time.Now(), m.Since, time.Minute)
	}
	require.Contains(w, list[1].Name, host+"/")
	require.NotEqual(w, list[0].ID, list[1].ID)
	e := testdb.Get(w, q, id)
	require.Equal(w, list[0].ID, e.Consumer)
	require.Equal(w, "billing", e.LeasedBy)
	require.Empty(w, consumers(w, other), "only consumers of this queue")

	first := list[0]
	w.Eventually("its heartbeat is stored", func() bool {
		again := consumers(w, q)[0]
		require.Equal(w, first.ID, again.ID)
		require.Equal(w, first.Since, again.Since)
		return again.Until.Sub(first.Until) > steadyLease
	})
	a.Stop()
	require.Len(w, consumers(w, q), 2, "the first consumer still holds a message")
	require.NoError(w, l.Ack())
	require.NoError(w, a.Shutdown(w.Soon()))
	require.Len(w, consumers(w, q), 1)
}

func gaveUpConsumer(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Minute})
	l := testdb.Take(w, c, 1)[0]
	w.Eventually("it has joined", func() bool { return len(consumers(w, q)) == 1 })
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault { // the message that it holds cannot be released
		if testdb.Runs(op, st.Release(nil)) || testdb.Runs(op, st.SkipLocked().Release(nil)) {
			return w.Broken(false)
		}
		return faultdb.Fault{}
	})
	ended, end := context.WithCancel(context.Background())
	end()
	require.ErrorContains(w, c.Shutdown(ended), "leases not settled: 1, settles not confirmed: 0")
	require.NoError(w, c.Shutdown(w.Soon()), "its goroutines end")
	w.Heal()
	require.Len(w, consumers(w, q), 1, "its name is shown as the holder of the message")
	require.NotEmpty(w, testdb.Get(w, q, l.ID).LeasedBy)
}

func consumerHangs(w *world) {
	q := w.Queue("work", chanq.Config{})
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("one connection serves all statements")
	}
	testdb.Send(w, q, testdb.Texts("a")...)
	st := w.Statements("work")
	struck, free := w.stick(func(op faultdb.Op) bool { return testdb.Runs(op, st.Join(sqlbatch.Consumer{})) })
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.within("it tries to join", struck)
	l := testdb.Take(w, c, 1)[0]
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.Soon()))
	free()
	require.NoError(w, c.Shutdown(w.Soon()))
}

func consumerRefused(w *world) {
	var mu sync.Mutex
	var events []chanq.HousekeepingEvent
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Housekeeping: func(e chanq.HousekeepingEvent) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}}})
	st := w.Statements("work")
	refused, away := w.Failure(sqlbatch.Permanent), w.Failure(sqlbatch.Refused)
	var tries int
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !testdb.Runs(op, st.Join(sqlbatch.Consumer{})) {
			return faultdb.Fault{}
		}
		if tries++; tries == 1 {
			return faultdb.Fail(away)
		}
		return faultdb.Fail(refused)
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease})
	w.Eventually("it tries several times", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return tries > 4
	})
	testdb.Send(w, q, testdb.Texts("a")...)
	w.ackAtLast(c, "a") // the consumer continues
	require.NoError(w, c.Err())
	mu.Lock()
	require.Len(w, events, 1, "once; an outage is not reported by this hook")
	require.Equal(w, "work", events[0].Queue)
	require.Equal(w, "consumers", events[0].Task)
	require.ErrorIs(w, events[0].Err, refused)
	mu.Unlock()
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Equal(w, []chanq.HousekeepingEvent{{Queue: "work", Task: "consumers", Ended: true}}, events[1:], "the failure ends with the consumer")
}
