package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var outages = []test{
	{"G01_ConsumerAndProducerContinueAfterAnOutage", outage},
	{"AnOutageIsReportedAsOverWhenItsConsumerOrProducerStops", outageOfWhoEnds},
	{"APermanentErrorStopsTheConsumerAndErrReturnsIt", permanent},
	{"AClosedDatabaseFailsEveryCallAndStopsEachConsumer", closedDatabase},
	{"AnErrorOfOldConnectionsIsNotReported", oldConnections},
	{"AnErrorOfAnOldConnectionEndsNoConsumerWhoseRescansAreSlow", slowRescans},
	{"AnIdleConsumerCostsOneStatementAPollEvery", idle},
	{"MessagesOfOtherProcessesAreFoundByPolling", polling},
}

// log collects Availability events.
type log struct {
	mu     sync.Mutex
	events []chanq.AvailabilityEvent
}

func (l *log) add(e chanq.AvailabilityEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *log) of(part string) (up, down int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		switch {
		case e.Part != part:
		case e.Up:
			up++
		default:
			down++
		}
	}
	return up, down
}

func outage(w *world) {
	for i, f := range []faultdb.Fault{
		faultdb.Cut(w.Failure(sqlbatch.Unknown)),
		faultdb.Fail(w.Failure(sqlbatch.Refused)),
	} {
		var l log
		cfg := chanq.Config{Hooks: chanq.Hooks{Availability: l.add}}
		q := w.Queue(fmt.Sprint("work", i), cfg)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "before"})
		require.NoError(w, err)
		held := testdb.Take(w, c, 1)[0]

		var struck atomic.Int64
		w.Faults.Inject(func(faultdb.Op) faultdb.Fault {
			struck.Add(1)
			return f
		})
		w.Faults.CutAll(w.Failure(sqlbatch.Unknown))
		sent := make(chan error, 1)
		go func() {
			_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "during"})
			sent <- err
		}()
		require.NoError(w, held.Ack())
		down := func(part string) bool { up, down := l.of(part); return up == 0 && down == 1 }
		w.Eventually("both have reported", func() bool { return down("consumer") && down("producer") })
		from := struck.Load()
		w.Eventually("they repeat their statements", func() bool { return struck.Load() > from+10 })
		require.True(w, down("consumer") && down("producer"), "once")
		require.Empty(w, sent)
		select {
		case _, open := <-c.C():
			require.True(w, open, "the channel stays open")
		default:
		}
		require.NoError(w, c.Err())

		w.Faults.Inject(nil)
		require.NoError(w, <-sent)
		require.NoError(w, held.Wait(w.Soon()))
		for {
			l := testdb.Take(w, c, 1)[0]
			require.NoError(w, l.Ack())
			if l.Body == "during" {
				break
			}
		}
		require.NoError(w, c.Flush(w.Soon()))
		back := func(part string) bool { up, down := l.of(part); return up == 1 && down == 1 }
		w.Eventually("both have reported the end", func() bool { return back("consumer") && back("producer") })
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

// outageOfWhoEnds: metrics and probes count consumers and producers that are in an outage. If one is stopped during an outage, the count
// must go down again.
func outageOfWhoEnds(w *world) {
	var l log
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Availability: l.add}})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	testdb.SendBy(w, p, chanq.Message[string]{Body: "before"})
	held := testdb.Take(w, c, 1)[0]
	w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Fail(w.Failure(sqlbatch.Refused)) })
	require.NoError(w, held.Ack())
	sent := make(chan error, 1)
	go func() { // ends with Close
		_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "during"})
		sent <- err
	}()
	w.Eventually("both have reported", func() bool {
		_, consumers := l.of("consumer")
		_, producers := l.of("producer")
		return consumers == 1 && producers == 1
	})
	over, cancel := context.WithCancel(context.Background())
	cancel() // the database does not recover
	require.Error(w, c.Shutdown(over))
	_ = p.Close(over) // Send returns the error
	require.Error(w, <-sent)
	w.Eventually("both outages are over", func() bool {
		consumers, _ := l.of("consumer")
		producers, _ := l.of("producer")
		return consumers == 1 && producers == 1
	})
	w.Faults.Inject(nil)
	require.Len(w, l.events, 4, "there are no later events")
	for _, e := range l.events {
		require.Equal(w, e.Up, e.Ended, "it is unknown whether the database responds")
		require.Equal(w, e.Up, e.Down > 0)
	}
}

func permanent(w *world) {
	for i, class := range []sqlbatch.Class{sqlbatch.Permanent, sqlbatch.NoSchema} {
		name := fmt.Sprint("work", i)
		q := w.Queue(name, chanq.Config{})
		testdb.Send(w, q, testdb.Texts("a", "b")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
		leases := testdb.Take(w, c, 2)
		cause := w.Failure(class)
		st := w.Statements(name)
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			// If a session checks whether the statement compiles, it gets the same error.
			asked := op
			if op.Kind == faultdb.Prepare {
				asked.Kind = faultdb.Query
			}
			if claims(asked, st) || looks(asked, st) {
				return faultdb.Fail(cause)
			}
			return faultdb.Fault{}
		})
		require.NoError(w, leases[0].Ack())
		select {
		case _, open := <-c.C():
			require.False(w, open)
		case <-time.After(testdb.Patience):
			require.Fail(w, "the channel stays open")
		}
		require.ErrorIs(w, c.Err(), cause)
		var op *chanq.OpError
		require.ErrorAs(w, c.Err(), &op)
		require.Equal(w, "claim", op.Op)
		if class == sqlbatch.NoSchema {
			require.ErrorIs(w, c.Err(), chanq.ErrNoSchema)
			require.ErrorContains(w, c.Err(), "chanq migrate "+name)
		}
		require.NoError(w, leases[1].Ack(), "delivered messages can be settled")
		require.NoError(w, leases[1].Wait(w.Soon()))
		require.ErrorIs(w, c.Handle(1, func(context.Context, *chanq.Lease[string]) error { return nil }), cause)
		require.ErrorIs(w, c.Shutdown(w.Soon()), cause)
		w.Faults.Inject(nil)
		require.Zero(w, testdb.Counted(w, q))
	}
}

// closedDatabase closes the *sql.DB too early. It never opens again.
func closedDatabase(w *world) {
	const closed = "sql: database is closed"
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		cfg := chanq.Config{Spec: chanq.Spec{Kind: kind}}
		name := "work_" + kind.String()
		w.Queue(name, cfg)
		_, db := w.Connect()
		q := testdb.OpenOn[string](w, db, name, cfg)
		sender := testdb.Produce(w, q, chanq.ProducerConfig{})
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		testdb.SendBy(w, sender, testdb.Texts("a", "b", "c")...)
		leases := testdb.Take(w, c, 3)
		require.NoError(w, leases[0].Ack())
		require.NoError(w, leases[0].Wait(w.Soon()))
		require.NoError(w, db.Close())
		ctx := context.Background()
		testdb.Receive(w, c.Done(), "the end of the consumer")
		require.ErrorContains(w, c.Err(), closed)
		for what, do := range map[string]func() error{
			"Queue.Send":    func() error { _, err := q.Send(ctx, chanq.Msg("d")); return err },
			"Producer.Send": func() error { _, err := sender.Send(ctx, chanq.Msg("d")); return err },
			"SendBatch":     func() error { _, err := sender.SendBatch(ctx, testdb.Texts("d", "e")...); return err },
			"Cancel":        func() error { _, err := q.Cancel(ctx, leases[1].ID); return err },
			"InTx":          func() error { return chanq.InTx(ctx, db, func(context.Context, *sql.Tx) error { return nil }) },
			"Consume": func() error {
				c, err := q.Consume(ctx, chanq.ConsumerConfig{})
				require.NoError(w, err)
				testdb.Receive(w, c.Done(), "the end of the second consumer")
				_ = c.Shutdown(ctx)
				return c.Err()
			},
			"Open":    func() error { _, err := chanq.Open[string](ctx, db, name, cfg); return err },
			"Migrate": func() error { return chanq.Migrate(ctx, db, name, cfg) },
		} {
			err := do()
			require.ErrorContains(w, err, closed, what)
			require.NotErrorIs(w, err, chanq.ErrUnavailable, what)
		}
		for what, err := range map[string]error{
			"Extend": leases[1].Extend(ctx, time.Minute), // on a session that is still open, or not
			"Ack":    errors.Join(leases[2].Ack(), leases[2].Wait(ctx)),
		} {
			if err != nil {
				require.ErrorContains(w, err, closed, what)
			}
		}
		_ = leases[1].Release()
		sender.C() <- chanq.Msg("unsent")
		var unsent *chanq.UnsentError[string]
		require.ErrorAs(w, sender.Close(ctx), &unsent)
		require.ErrorContains(w, unsent.Unsent[0].Err, closed)
		began := time.Now()
		_ = c.Shutdown(ctx)
		require.Less(w, time.Since(began), time.Minute)
	}
}

// oldConnections makes each statement fail for good on the connections that there are, as after a change of the schema, or when an earlier
// user has left another role on them. New connections work.
func oldConnections(w *world) {
	// A connection that is being made, or has just been made to repeat a statement, is none of those that there are.
	const few = 2
	var mu sync.Mutex
	ran, old := map[int]int{}, map[int]int{} // statements by connection
	db := w.Open()
	if db.SetMaxIdleConns(10); w.Engine.Dialect.Traits().OneWriter {
		db.SetMaxIdleConns(-1) // its idle connections stay
	}
	lasting := []error{w.Failure(sqlbatch.Permanent), w.Failure(sqlbatch.NoSchema)}
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == faultdb.Exec || op.Kind == faultdb.Query || op.Kind == faultdb.Prepare {
			if ran[op.Conn]++; old[op.Conn] > few {
				return faultdb.Fail(lasting[op.N%len(lasting)])
			}
		}
		return faultdb.Fault{}
	})
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		q := w.Queue("work_"+kind.String(), chanq.Config{Spec: chanq.Spec{Kind: kind}})
		out := w.Queue("out_"+kind.String(), chanq.Config{})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		c, piped := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 30 * time.Second}), testdb.Start(w, out, chanq.ConsumerConfig{})
		replaced, ended := make(chan *chanq.Lease[string]), make(chan error, 1)
		go func() {
			ended <- chanq.Pipe(piped, q, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				replaced <- l
				return testdb.Texts("f"), nil
			})
		}()
		for range 3 {
			mu.Lock()
			old = maps.Clone(ran)
			mu.Unlock()
			_, err := q.Send(w.Soon(), testdb.Texts("a")...)
			require.NoError(w, err)
			_, err = q.Send(w.Soon(), chanq.Message[string]{Body: "b", DedupKey: "b"}, chanq.Message[string]{Body: "c", DedupKey: "c"})
			require.NoError(w, err)
			_, err = p.SendBatch(w.Soon(), testdb.Texts("d", "e")...)
			require.NoError(w, err)
			leases := testdb.Take(w, c, 5)
			mu.Lock()
			old = maps.Clone(ran)
			mu.Unlock()
			for _, l := range leases {
				require.NoError(w, l.Extend(w.Soon(), 3*time.Second))
				require.NoError(w, l.Ack())
				require.NoError(w, l.Wait(w.Soon()))
			}
			testdb.Send(w, out, testdb.Texts("in")...)
			select {
			case l := <-replaced:
				require.NoError(w, l.Wait(w.Soon()))
			case err := <-ended:
				require.Fail(w, "the pipe has ended", err)
			}
			require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
			testdb.Stats(w, q)
		}
		require.NoError(w, c.Err())
		require.NoError(w, piped.Err())
	}
}

// slowRescans is oldConnections for rescans that take long, as on a busy server: they use sessions of housekeeping, whose failures are not
// repeated on new connections. Only rescans fail, by a plan that the connection has kept.
func slowRescans(w *world) {
	if db := w.Open(); w.Engine.Dialect.Traits().OneWriter {
		db.SetMaxIdleConns(-1) // its idle connections stay
	}
	q := w.Queue("work", chanq.Config{})
	st, permanent := w.Statements("work"), w.Failure(sqlbatch.Permanent)
	var mu sync.Mutex
	seen, old, slow := map[int]bool{}, map[int]bool{}, 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch seen[op.Conn] = true; {
		case op.Kind == faultdb.Prepare || !testdb.Runs(op, st.Rescan()):
			return faultdb.Fault{}
		case old[op.Conn]:
			return faultdb.Fail(permanent)
		}
		slow++
		answer := make(chan struct{})
		time.AfterFunc(100*time.Millisecond, func() { close(answer) })
		return faultdb.Hold(answer)
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 50 * time.Millisecond})
	for n := 3; n < 12; n += 3 {
		w.Eventually("rescans are slow", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slow >= n || c.Err() != nil
		})
		require.NoError(w, c.Err())
		mu.Lock()
		old = maps.Clone(seen)
		mu.Unlock()
	}
}

func idle(w *world) {
	const pollMax = 100 * time.Millisecond
	q := w.Queue("work", chanq.Config{History: chanq.HistoryOff})                          // the history has statements of its own
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: pollMax, LeaseFor: time.Hour}) // heartbeats, which write, are rare
	w.Eventually("the pauses are at their longest", func() bool { return c.Stats().Looks > 12 })
	var ops, writes atomic.Int64
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case op.Kind == faultdb.Prepare: // some drivers prepare each query, without a round trip
		case looks(op, st):
			ops.Add(1)
		default:
			writes.Add(1)
		}
		return faultdb.Fault{}
	})
	began := time.Now()
	w.Eventually("twelve polls", func() bool { return ops.Load() >= 12 })
	// Each pause is jittered down to as little as half.
	require.GreaterOrEqual(w, time.Since(began), 11*pollMax/2-pollMax/2)
	require.Zero(w, writes.Load(), "polls do not write")
}

func polling(w *world) {
	const pollEvery = 50 * time.Millisecond
	cfg := chanq.Config{Notifier: chanq.NoNotifier{}}
	q := w.Queue("work", cfg)
	_, db := w.Connect()
	elsewhere := testdb.OpenOn[string](w, db, "work", cfg)
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: pollEvery})
	for range 3 {
		looks := c.Stats().Looks
		w.Eventually("its pauses are at their longest", func() bool { return c.Stats().Looks > looks+12 })
		began := time.Now()
		testdb.Send(w, elsewhere, testdb.Texts("a")...)
		l := testdb.Take(w, c, 1)[0]
		if w.Engine.Bubble {
			require.LessOrEqual(w, time.Since(began), pollEvery+10*time.Millisecond)
		}
		require.NoError(w, l.Ack())
		require.NoError(w, l.Wait(w.Soon()))
	}
}
