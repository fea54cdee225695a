package guarantees

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var watching = []test{
	{"ACommitBeforeOrAfterAnyStatementWakesAConsumerThatWatches", watchingAtAnyStatement},
	{"AWatchThatFailsIsMadeAgain", watchingAgain},
	{"ConsumersOfManyQueuesWatchByOneRequest", watchingTogether},
	{"AWatchThatIsRefusedIsToldAndTheConsumerPolls", watchingRefused},
	{"AQueueThatIsDroppedEndsNoOtherQueuesWatch", watchingDropped},
}

// watches skips a test where there is no watch, and says which statements are one.
func (w *world) watches() func(faultdb.Op) bool {
	d := w.Engine.Dialect
	if d.Watch(nil, 0, 0).Text == "" {
		w.Skip("it has no watch")
	}
	return func(op faultdb.Op) bool {
		return op.Kind == faultdb.Query && strings.Contains(textOf(op), "WAITFOR DELAY @every")
	}
}

// watcher has a consumer that watches, and has nothing else to do until it is woken.
func (w *world) watcher(q *chanq.Queue[string]) *chanq.Consumer[string] {
	cfg := seldom
	cfg.WatchEvery = 2 * time.Millisecond
	return testdb.Start(w, q, cfg)
}

// A message is committed before the database sees a statement of an idle consumer's, or
// when it has done it and before the consumer knows: of each statement in turn, at first
// and after another message. The consumer, which looks once an hour, has it soon.
func watchingAtAnyStatement(w *world) {
	// Until it sleeps, and a watch has ended in vain. One comes each second then.
	statements := map[bool]int{true: 7, false: 2}
	w.Within(5 * testdb.Bound)
	watch := w.watches()
	w.Queue("work", chanq.Config{})
	_, elsewhere := w.Connect()
	sender := testdb.Produce(w, testdb.OpenOn[string](w, elsewhere, "work", chanq.Config{}), chanq.ProducerConfig{})
	st := w.Statements("work")
	for _, early := range []bool{true, false} {
		for n := range statements[early] {
			for _, applied := range []bool{false, true} {
				at := fmt.Sprintf("early %v, statement %d, done %v", early, n, applied)
				held, gate := make(chan string, 1), make(chan struct{})
				count := -1
				hold := func(op faultdb.Op) faultdb.Fault {
					if !watch(op) && !looks(op, st) && !claims(op, st) {
						return faultdb.Fault{}
					}
					if count++; count != n {
						return faultdb.Fault{}
					}
					held <- op.String()
					if applied {
						return faultdb.Hold(gate).Applied()
					}
					return faultdb.Hold(gate)
				}
				if early {
					w.Faults.Inject(hold)
				}
				c := w.watcher(testdb.OpenOn[string](w, w.DB, "work", chanq.Config{}))
				if !early {
					w.Eventually("it sleeps", func() bool { return c.Stats().Looks > 1 })
					testdb.SendBy(w, sender, chanq.Message[string]{Body: "before"})
					l := testdb.Take(w, c, 1)[0]
					w.Faults.Inject(hold)
					require.NoError(w, l.Ack())
				}
				which := testdb.Receive(w, held, at)
				testdb.SendBy(w, sender, chanq.Message[string]{Body: at})
				close(gate)
				l := testdb.Take(w, c, 1)[0]
				require.Equal(w, at, l.Body, which)
				require.NoError(w, l.Ack())
				w.Faults.Inject(nil)
				require.NoError(w, c.Shutdown(w.Soon()))
			}
		}
	}
}

// Whatever becomes of a request, the next one comes, and a message with it: one that is sent
// when the consumer, which looks once an hour, has looked again and sleeps.
func watchingAgain(w *world) {
	w.Within(3 * testdb.Bound)
	watch := w.watches()
	q := w.Queue("work", chanq.Config{})
	_, elsewhere := w.Connect()
	sender := testdb.Produce(w, testdb.OpenOn[string](w, elsewhere, "work", chanq.Config{}), chanq.ProducerConfig{})
	failure := w.Engine.Errors
	for what, fault := range map[string]faultdb.Fault{
		"undone": faultdb.Fail(failure[sqlbatch.RolledBack]), "refused": faultdb.Fail(failure[sqlbatch.Permanent]),
		"not arrived": faultdb.Cut(failure[sqlbatch.Unknown]), "not answered": faultdb.Cut(failure[sqlbatch.Unknown]).Applied(),
	} {
		var requests atomic.Int32
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if !watch(op) || requests.Add(1) > 1 {
				return faultdb.Fault{}
			}
			return fault
		})
		c := w.watcher(q)
		// One failed, one took a chair, and one of a second ended in vain.
		w.Eventually(what, func() bool { return requests.Load() > 3 })
		testdb.SendBy(w, sender, chanq.Message[string]{Body: what})
		require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
		require.NoError(w, c.Shutdown(w.Soon()))
		w.Faults.Inject(nil)
	}
}

// At most one request is under way, for all queues on the *sql.DB, as they come and go.
func watchingTogether(w *world) {
	watch := w.watches()
	const queues = 5
	var all []*chanq.Consumer[string]
	var senders []*chanq.Producer[string]
	w.Open()
	_, elsewhere := w.Connect()
	texts := map[string]bool{}
	conns := map[int]bool{}
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if watch(op) {
			texts[textOf(op)] = true
			conns[op.Conn] = true
		}
		return faultdb.Fault{}
	})
	for i := range queues {
		name := fmt.Sprintf("work_%d", i)
		q := w.Queue(name, chanq.Config{})
		senders = append(senders, testdb.Produce(w, testdb.OpenOn[string](w, elsewhere, name, chanq.Config{}), chanq.ProducerConfig{}))
		all = append(all, w.watcher(q))
	}
	for round := range 3 {
		for i, p := range senders {
			body := fmt.Sprintf("%d of %d", round, i)
			testdb.SendBy(w, p, chanq.Message[string]{Body: body})
			l := testdb.Take(w, all[i], 1)[0]
			require.Equal(w, body, l.Body)
			require.NoError(w, l.Ack())
		}
	}
	require.NoError(w, all[0].Shutdown(w.Soon()))
	testdb.SendBy(w, senders[1], chanq.Message[string]{Body: "still"})
	require.NoError(w, testdb.Take(w, all[1], 1)[0].Ack())
	w.Faults.Inject(nil)
	require.LessOrEqual(w, len(texts), queues+1, "as they came, and when one went")
	require.Len(w, conns, 1)
}

// A login that must not is told once, and its consumers get their messages as without.
func watchingRefused(w *world) {
	watch := w.watches()
	events := make(chan chanq.HousekeepingEvent, 100)
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Housekeeping: func(e chanq.HousekeepingEvent) { events <- e }}})
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if watch(op) {
			return faultdb.Fail(w.Engine.Errors[sqlbatch.Permanent])
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{WatchEvery: 2 * time.Millisecond})
	e := testdb.Receive(w, events, "that it is refused")
	require.Equal(w, "watch", e.Task)
	require.Error(w, e.Err)
	_, elsewhere := w.Connect()
	testdb.Send(w, testdb.OpenOn[string](w, elsewhere, "work", chanq.Config{}), testdb.Texts("a", "b")...)
	for _, l := range testdb.Take(w, c, 2) {
		require.NoError(w, l.Ack())
	}
	w.Faults.Inject(nil)
	e = testdb.Receive(w, events, "that it goes on")
	require.Equal(w, "watch", e.Task)
	require.NoError(w, e.Err)
	require.False(w, e.Ended)
	require.NoError(w, c.Err())

	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if watch(op) {
			return faultdb.Fail(w.Engine.Errors[sqlbatch.Permanent])
		}
		return faultdb.Fault{}
	})
	require.Error(w, testdb.Receive(w, events, "that it is refused again").Err)
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Equal(w, chanq.HousekeepingEvent{Queue: "work", Task: "watch", Ended: true}, testdb.Receive(w, events, "its end"))
}

func watchingDropped(w *world) {
	w.watches()
	kept, dropped := w.Queue("kept", chanq.Config{}), w.Queue("dropped", chanq.Config{})
	a, b := w.watcher(kept), testdb.Start(w, dropped, chanq.ConsumerConfig{WatchEvery: 2 * time.Millisecond})
	w.Eventually("both sleep", func() bool { return a.Stats().Looks > 1 && b.Stats().Looks > 1 })
	_, elsewhere := w.Connect()
	require.NoError(w, chanq.Drop(w.Soon(), elsewhere, "dropped", chanq.Config{}))
	testdb.Receive(w, b.Done(), "its end")
	require.ErrorIs(w, b.Err(), chanq.ErrNoSchema)
	testdb.Send(w, testdb.OpenOn[string](w, elsewhere, "kept", chanq.Config{}), testdb.Texts("a")...)
	require.Equal(w, "a", testdb.Take(w, a, 1)[0].Body)
}
