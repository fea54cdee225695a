package mssqlnotify_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/mssqlnotify"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// A message is committed before each statement of an idle consumer or its Notifier, or after the statement and
// before its response arrives. This is tested for the first message and for a later one. The consumer polls
// once an hour and must receive the message soon.
func TestACommitBeforeOrAfterAnyStatementWakesAConsumer(t *testing.T) {
	each(t, func(w *world) {
		// Statements until the consumer is idle and a request has ended without a find. Then there is one per
		// second.
		statements := map[bool]int{true: 7, false: 3}
		hourly := chanq.ConsumerConfig{PollEvery: time.Hour} // it makes few statements
		w.Within(5 * testdb.Bound)
		w.Queue("work", chanq.Config{})
		sender := w.sender("work")
		st := w.Statements("work")
		meant := func(op faultdb.Op) bool {
			for _, s := range []sqlbatch.Statement{st.NextDue(sqlbatch.Heads{}), st.Rescan(), st.Claim(sqlbatch.ClaimParams{Rows: 1, Inline: sqlbatch.MaxBody})} {
				if testdb.Runs(op, s) {
					return true
				}
			}
			return isRequest(op)
		}
		for _, early := range []bool{true, false} {
			for n := range statements[early] {
				for _, applied := range []bool{false, true} {
					at := fmt.Sprintf("early %v, statement %d, done %v", early, n, applied)
					held, gate := make(chan string, 1), make(chan struct{})
					count := -1
					hold := func(op faultdb.Op) faultdb.Fault {
						if !meant(op) {
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
					b, _ := w.notifier(w.DB)
					c := testdb.Start(w, testdb.OpenOn[string](w, w.DB, "work", chanq.Config{Notifier: b}), hourly)
					if !early {
						w.asleep(c)
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
					require.NoError(w, b.Close())
				}
			}
		}
	})
}

// After any failed request there is another one. It finds a message that was sent after the consumer, which
// polls once an hour, has polled again and is idle.
func TestAFailedRequestIsRepeated(t *testing.T) {
	each(t, func(w *world) {
		w.Within(4 * testdb.Bound)
		w.Queue("work", chanq.Config{})
		sender := w.sender("work")
		failure := w.Engine.Errors
		for what, fault := range map[string]faultdb.Fault{
			"undone": faultdb.Fail(failure[sqlbatch.RolledBack]), "refused": faultdb.Fail(failure[sqlbatch.Permanent]),
			"not arrived": faultdb.Cut(failure[sqlbatch.Unknown]), "not answered": faultdb.Cut(failure[sqlbatch.Unknown]).Applied(),
		} {
			for nth := range int32(2) { // the first read, or the waiting request
				var requests atomic.Int32
				w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
					if !isRequest(op) || requests.Add(1) != nth+1 {
						return faultdb.Fault{}
					}
					return fault
				})
				b, changed := w.notifier(w.DB)
				c := testdb.Start(w, testdb.OpenOn[string](w, w.DB, "work", chanq.Config{Notifier: b}), rarely)
				require.Error(w, testdb.Receive(w, changed, what))
				require.NoError(w, testdb.Receive(w, changed, "that it is over"))
				require.NoError(w, b.Err())
				// The first read has succeeded. Then a request of one second ends without a find.
				before := requests.Load()
				w.Eventually(what, func() bool { return requests.Load() > before+2 })
				w.pass(what, sender, c)
				require.NoError(w, c.Shutdown(w.Soon()))
				require.NoError(w, b.Close())
				require.Empty(w, changed)
				w.Faults.Inject(nil)
			}
		}
	})
}

func TestAnOldConnectionIsReplacedBetweenTwoRequests(t *testing.T) {
	each(t, func(w *world) {
		w.Queue("work", chanq.Config{})
		sender := w.sender("work")
		conns := map[int]bool{}
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if isRequest(op) {
				conns[op.Conn] = true
			}
			return faultdb.Fault{}
		})
		b, changed := w.notifier(w.DB)
		q := testdb.OpenOn[string](w, w.DB, "work", chanq.Config{Notifier: b, SessionMaxAge: 2 * time.Second})
		c := testdb.Start(w, q, rarely)
		for range 3 {
			w.asleep(c)
			w.settle(2500 * time.Millisecond)
			w.pass("a", sender, c)
		}
		require.NoError(w, c.Shutdown(w.Soon()))
		require.NoError(w, b.Close())
		w.Faults.Inject(nil)
		require.GreaterOrEqual(w, len(conns), 3)
		require.Empty(w, changed)
	})
}

// At most one request runs at a time for all queues of the Notifier, even while queues are added and removed.
func TestConsumersOfManyQueuesAreServedByOneRequest(t *testing.T) {
	each(t, func(w *world) {
		const queues = 5
		var all []*chanq.Consumer[string]
		var senders []*chanq.Producer[string]
		w.Open()
		b, changed := w.notifier(w.DB)
		texts := map[string]bool{}
		conns := map[int]bool{}
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if isRequest(op) {
				texts[textOf(op)] = true
				conns[op.Conn] = true
			}
			return faultdb.Fault{}
		})
		for i := range queues {
			name := fmt.Sprintf("work_%d", i)
			q := w.Queue(name, chanq.Config{Notifier: b})
			senders = append(senders, w.sender(name))
			all = append(all, testdb.Start(w, q, rarely))
		}
		for _, c := range all {
			w.asleep(c)
		}
		for round := range 3 {
			for i, p := range senders {
				w.pass(fmt.Sprintf("%d of %d", round, i), p, all[i])
			}
		}
		require.NoError(w, all[0].Shutdown(w.Soon()))
		w.pass("still", senders[1], all[1])
		w.Faults.Inject(nil)
		require.Less(w, len(texts), 2*queues, "of each queue alone, and of all in the order of their arrival")
		require.Len(w, conns, 1)
		require.Empty(w, changed)
	})
}

// A missing permission is reported once, and the consumers receive their messages as without a Notifier.
func TestARefusalIsReportedOnceAndTheConsumerPolls(t *testing.T) {
	each(t, func(w *world) {
		w.Open()
		b, changed := w.notifier(w.DB)
		require.NoError(w, b.Err())
		q := w.Queue("work", chanq.Config{Notifier: b})
		w.failEach(sqlbatch.Permanent)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		err := testdb.Receive(w, changed, "that it is refused")
		require.ErrorIs(w, err, w.Engine.Errors[sqlbatch.Permanent])
		require.ErrorContains(w, err, "dbo.work")
		require.Equal(w, err, b.Err())
		sender := w.sender("work")
		w.pass("a", sender, c)
		w.pass("b", sender, c)
		w.settle(20 * time.Second)
		require.Empty(w, changed)
		w.Faults.Inject(nil)
		require.NoError(w, testdb.Receive(w, changed, "that it goes on"))
		require.NoError(w, b.Err())
		require.NoError(w, c.Err())
	})
}

func TestADroppedQueueDoesNotStopTheRequestsOfOthers(t *testing.T) {
	each(t, func(w *world) {
		w.Open()
		notifier, _ := w.notifier(w.DB)
		cfg := chanq.Config{Notifier: notifier}
		kept, dropped := w.Queue("kept", cfg), w.Queue("dropped", cfg)
		a, b := testdb.Start(w, kept, rarely), testdb.Start(w, dropped, chanq.ConsumerConfig{})
		w.asleep(a)
		w.asleep(b)
		_, elsewhere := w.Connect()
		require.NoError(w, chanqadmin.Drop(w.Soon(), elsewhere, "dropped", chanq.Config{}, chanqadmin.Change{}))
		testdb.Receive(w, b.Done(), "its end")
		require.ErrorIs(w, b.Err(), chanq.ErrNoSchema)
		w.pass("a", w.sender("kept"), a)
	})
}

// The table of a queue is missing, and consumers repeatedly listen on the queue. The queue is tried alone, and
// the consumers of other queues are woken.
func TestAFailingQueueIsLeftOutOfTheRequestsOfOthers(t *testing.T) {
	each(t, func(w *world) {
		w.Within(3 * testdb.Bound)
		w.Queue("kept", chanq.Config{})
		w.Queue("gone", chanq.Config{})
		b, changed := w.notifier(w.DB)
		kept, stop := b.Listen("dbo.kept", nil)
		testdb.Receive(w, kept, "the first value")
		gone, stopGone := b.Listen("dbo.gone", nil)
		testdb.Receive(w, gone, "the first value")
		_, elsewhere := w.Connect()
		require.NoError(w, chanqadmin.Drop(w.Soon(), elsewhere, "gone", chanq.Config{}, chanqadmin.Change{}))
		for _, woken := range []<-chan struct{}{gone, kept} {
			w.Eventually("the request of both ends", func() bool { return isClosed(woken) })
		}
		stop()
		stopGone()
		err := testdb.Receive(w, changed, "that it is gone")
		require.Error(w, err)
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if isRequest(op) && strings.Contains(textOf(op), "[chanq_gone]") {
				assert.NotContains(w, textOf(op), "[chanq_kept]")
			}
			return faultdb.Fault{}
		})
		kept, stop = b.Listen("dbo.kept", nil)
		defer stop()
		testdb.Receive(w, kept, "the first value")
		for range 6 {
			gone, stopGone = b.Listen("dbo.gone", nil)
			w.Eventually("it ends", func() bool { return isClosed(gone) })
			stopGone()
			w.settle(time.Second)
			require.False(w, isClosed(kept))
		}
		require.Empty(w, changed, "it is still gone")
		require.ErrorContains(w, b.Err(), "dbo.gone")
		testdb.SendBy(w, w.sender("kept"), chanq.Message[string]{Body: "a"})
		testdb.Receive(w, kept, "the message")
		w.Faults.Inject(nil)
		w.Queue("gone", chanq.Config{})
		gone, stopGone = b.Listen("dbo.gone", nil)
		defer stopGone()
		testdb.Receive(w, gone, "the first value")
		require.NoError(w, testdb.Receive(w, changed, "that it is there"))
	})
}

// Reads skip a message while its transaction is open, and find it after the commit if the transaction took less
// than a HeadMargin.
func TestAMessageCommittedAfterLaterReadsIsFound(t *testing.T) {
	each(t, func(w *world) {
		w.Queue("work", chanq.Config{})
		b, _ := w.notifier(w.DB)
		woken, stop := b.Listen("dbo.work", nil)
		defer stop()
		testdb.Receive(w, woken, "the first value")
		w.settle(20 * time.Millisecond) // a request of a second is running
		_, elsewhere := w.Connect()
		sends := testdb.OpenOn[string](w, elsewhere, "work", chanq.Config{})
		tx, err := elsewhere.BeginTx(w.Soon(), nil)
		require.NoError(w, err)
		_, err = sends.SendTx(w.Soon(), tx, chanq.Message[string]{})
		require.NoError(w, err)
		w.settle(sqlbatch.HeadMargin / 3)
		require.Empty(w, woken)
		require.NoError(w, tx.Commit())
		testdb.Receive(w, woken, "the message")
	})
}

// Ordered queues have no statement for the requests.
func TestOrderedQueuesDoNotUseANotifier(t *testing.T) {
	each(t, func(w *world) {
		w.Open()
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			assert.False(w, isRequest(op))
			return faultdb.Fault{}
		})
		b, changed := w.notifier(w.DB)
		cfg := chanq.Config{Notifier: b, Spec: chanq.Spec{Kind: chanq.KindOrdered}}
		q := w.Queue("work", cfg)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		_, elsewhere := w.Connect()
		cfg.Notifier = nil
		p := testdb.Produce(w, testdb.OpenOn[string](w, elsewhere, "work", cfg), chanq.ProducerConfig{})
		testdb.SendBy(w, p, chanq.Message[string]{Key: "k", Body: "a"})
		require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
		w.settle(5 * time.Second)
		require.Empty(w, changed)
	})
}

// A closed Notifier leaves no lock, no connection and no listener.
func TestCloseEndsTheRunningRequestAndConsumersPoll(t *testing.T) {
	each(t, func(w *world) {
		w.Queue("work", chanq.Config{})
		first, _ := w.notifier(w.DB)
		woken, stop := first.Listen("dbo.work", nil)
		testdb.Receive(w, woken, "the first value")
		w.settle(100 * time.Millisecond) // a request is waiting
		require.NoError(w, first.Close())
		_, open := <-woken
		require.False(w, open)
		stop()
		again, stop := first.Listen("dbo.work", nil)
		require.True(w, isClosed(again))
		stop()
		require.NoError(w, first.Close())
		require.NoError(w, first.Err())
		require.Zero(w, w.DB.Stats().InUse)

		_, elsewhere := w.Connect()
		for range sqlbatch.WatchListeners { // it has released its lock
			b, _ := w.notifier(elsewhere)
			woken, stop := b.Listen("dbo.work", nil)
			defer stop()
			testdb.Receive(w, woken, "the first value")
		}
		unused, _ := w.notifier(elsewhere)
		require.NoError(w, unused.Close())
	})
}

func TestAPanicOfChangedEndsOnlyItsCall(t *testing.T) {
	each(t, func(w *world) {
		w.Queue("work", chanq.Config{})
		_, db := w.Connect()
		db.SetMaxOpenConns(1)
		changed := make(chan error, 10)
		b := mssqlnotify.New(db, mssqlnotify.Config{Changed: func(err error) {
			changed <- err
			panic("of Changed")
		}})
		w.Cleanup(func() { require.NoError(w, b.Close()) })
		_, stop := b.Listen("dbo.work", nil)
		require.ErrorIs(w, testdb.Receive(w, changed, "the report"), mssqlnotify.ErrOneConnection)
		stop()
		db.SetMaxOpenConns(2)
		_, stop = b.Listen("dbo.work", nil)
		require.NoError(w, testdb.Receive(w, changed, "that it is over"))
		stop()
	})
}

func TestANotifierTakesNoConnectionFromAPoolOfOne(t *testing.T) {
	each(t, func(w *world) {
		w.Queue("work", chanq.Config{})
		_, db := w.Connect()
		db.SetMaxOpenConns(1)
		b, changed := w.notifier(db)
		woken, stop := b.Listen("dbo.work", nil)
		require.ErrorIs(w, testdb.Receive(w, changed, "the report"), mssqlnotify.ErrOneConnection)
		stop()
		require.True(w, isClosed(woken))
		require.NoError(w, db.PingContext(w.Context()))
		db.SetMaxOpenConns(2)
		woken, stop = b.Listen("dbo.work", nil)
		testdb.Receive(w, woken, "the first value")
		require.NoError(w, testdb.Receive(w, changed, "that it is over"))
		require.NoError(w, db.PingContext(w.Context()))
		require.Equal(w, 1, db.Stats().InUse)
		stop()
		w.Eventually("the connection is released", func() bool { return db.Stats().InUse == 0 })
	})
}
