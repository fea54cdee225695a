package guarantees

import (
	"context"
	"errors"
	"fmt"
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

var sending = []test{
	{"G05_TheSameIDIsStoredOnce", sameID},
	{"AMessageArrivesAsItWasSent", arrivesAsSent},
	{"AnEmptyBodyIsDelivered", emptyBody},
	{"ADelayedMessageIsDeliveredWhenItIsDue", delayed},
	{"AnIdleConsumerClaimsAtTheNextDueTime", nextDue},
	{"FlushReturnsThoughUnsentMessagesFillTheBuffer", flushFullOfUnsent},
	{"FlushDuringCloseReportsWhatCloseDoes", flushDuringClose},
	{"CloseReturnsAnErrorIfItsContextIsCancelled", closeGivesUp},
	{"CloseStoresWhatWasSentBefore", closeStores},
	{"CloseReturnsWhatCouldNotBeStored", closeReturns},
	{"WhatUnsentTakesFreesItsRoomAndLetsFlushSucceed", unsentTaken},
	{"SendsAfterCloseAreRefused", sendAfterClose},
	{"G12_AMessageThatKeepsFailingDelaysNoOther", failingMessage},
	{"G12_AMessageThatATriggerRefusesIsRejectedAlone", refusedByTrigger},
	{"G05_ARowThatIsKnownToBeStoredIsNotStoredAgain", storedAndLookFails},
	{"WakeAfterACommitMakesAnIdleConsumerClaim", wake},
}

func sameID(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	id := chanq.NewID()
	m := chanq.Message[string]{ID: id, Body: "once"}
	for range 2 {
		r, err := p.Send(w.Soon(), m)
		require.NoError(w, err)
		require.Equal(w, chanq.Receipt{ID: id}, r)
	}
	receipts, err := p.SendBatch(w.Soon(), m, chanq.Message[string]{Body: "other"}, m)
	require.NoError(w, err)
	require.Equal(w, []chanq.Receipt{{ID: id}, {ID: receipts[1].ID}, {ID: id}}, receipts)
	require.Equal(w, chanqadmin.Stats{Ready: 2}, testdb.Counted(w, q))
	w.Hold(q.Name(), 2, time.Minute)
	_, err = p.Send(w.Soon(), m)
	require.NoError(w, err)
	tx := w.begin(w.DB)
	receipts, err = q.SendTx(w.Soon(), tx, m, chanq.Message[string]{ID: chanq.NewID()}, m)
	require.NoError(w, err)
	require.Equal(w, []chanq.ID{id, receipts[1].ID, id}, []chanq.ID{receipts[0].ID, receipts[1].ID, receipts[2].ID})
	require.NoError(w, tx.Commit())
	require.Equal(w, chanqadmin.Stats{Ready: 1, Leased: 2}, testdb.Counted(w, q), "leased messages are also not stored again")
}

func arrivesAsSent(w *world) {
	type order struct {
		Number int
		Name   string
	}
	q := testdb.QueueOf[order](w, "orders", chanq.Config{})
	headers := map[string]string{"trace": "00-abc", "ключ": "värde \" \\ \n 😀", "empty": ""}
	sent := chanq.Message[order]{
		Body: order{7, `käse ÿ \ " '`}, Headers: headers, Priority: chanq.PriorityHigh, DedupKey: `{"\, ' ключ 7`, Type: `a "type" ~`,
	}
	sent.ID = testdb.Send(w, q, sent)[0]
	c := testdb.Start(w, q, chanq.ConsumerConfig{Name: "me"})
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, sent, chanq.Message[order]{ID: l.ID, Body: l.Body, Headers: l.Headers, Priority: l.Priority, DedupKey: l.DedupKey, Key: l.Key, Type: l.Type})
	require.Equal(w, 1, l.Attempt)
	require.Equal(w, l.EnqueuedAt, l.DueAt)
	require.WithinDuration(w, time.Now(), l.EnqueuedAt, time.Hour)
	w.Eventually("the holder is known", func() bool { return testdb.Get(w, q, l.ID).LeasedBy == "me" })

	bytes := testdb.QueueOf[[]byte](w, "bytes", chanq.Config{})
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	big := make([]byte, 1<<20)
	big[1<<19] = 1
	testdb.Send(w, bytes, chanq.Message[[]byte]{Body: all}, chanq.Message[[]byte]{Body: big})
	got := testdb.Lease(w, bytes, 2, time.Minute)
	require.Equal(w, all, got[0].Body)
	require.Equal(w, big, got[1].Body)
}

func emptyBody(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("", "", "x", "")...)
	require.Equal(w, []string{"", "", "x", ""}, testdb.Bodies(testdb.Leases(testdb.Lease(w, q, 4, time.Minute))))
	bytes := testdb.QueueOf[[]byte](w, "bytes", chanq.Config{})
	testdb.Send(w, bytes, chanq.Message[[]byte]{}, chanq.Message[[]byte]{Body: []byte{}})
	for _, l := range testdb.Lease(w, bytes, 2, time.Minute) {
		require.Empty(w, l.Body)
		require.NoError(w, l.Ack())
	}
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	_, err := p.Send(w.Soon(), chanq.Message[string]{})
	require.NoError(w, err)
	require.Empty(w, testdb.Lease(w, q, 1, time.Minute)[0].Body)
}

func delayed(w *world) {
	q := w.Queue("work", chanq.Config{})
	sent := testdb.Send(w, q,
		chanq.Message[string]{Body: "later", Delay: slowness * 400 * time.Millisecond},
		chanq.Message[string]{Body: "soon", Delay: slowness * 200 * time.Millisecond},
		chanq.Message[string]{Body: "never", Delay: sqlbatch.MaxDelay})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for i, l := range testdb.Take(w, c, 2) {
		require.Equal(w, []string{"soon", "later"}[i], l.Body)
		require.Equal(w, []time.Duration{200, 400}[i]*slowness*time.Millisecond, l.DueAt.Sub(l.EnqueuedAt))
		require.NoError(w, l.Ack())
	}
	require.Equal(w, chanqadmin.StateScheduled, testdb.Get(w, q, sent[2]).State)
}

func nextDue(w *world) {
	q := w.Queue("work", alone)
	c := paused(w, q)
	testdb.Send(w, q, chanq.Message[string]{Body: "soon", Delay: slowness * 300 * time.Millisecond})
	require.Equal(w, "soon", w.woken(c).Body)
}

// flushFullOfUnsent: more messages are too large than the buffer holds.
func flushFullOfUnsent(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxBody: 10}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{BufferBytes: 600})
	const n = 10
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range 2 * n {
			m := chanq.Message[string]{Body: strings.Repeat("x", 11)}
			if i%2 == 1 {
				m.Body = "fits"
			}
			select {
			case p.C() <- m:
			case <-p.Done(): // the test has failed
			}
		}
	})
	taken, failed := 0, 0
	for taken < n {
		pass(20 * time.Millisecond) // the intake waits for room
		if err := p.Flush(w.Soon()); err != nil {
			failed++
			require.ErrorIs(w, err, chanq.ErrTooLarge)
			require.ErrorContains(w, err, "Unsent returns them")
		}
		for _, u := range p.Unsent() {
			require.ErrorIs(w, u.Err, chanq.ErrTooLarge)
			taken++
		}
	}
	sender.Wait()
	require.NoError(w, p.Flush(w.Soon()))
	require.Equal(w, n, testdb.Counted(w, q).Ready)
	require.Greater(w, failed, 1)
}

// gated blocks its encoding until gate is closed.
type gated struct{ gate chan struct{} }

func (g gated) MarshalJSON() ([]byte, error) {
	<-g.gate
	return []byte("{}"), nil
}

func flushDuringClose(w *world) {
	q := testdb.QueueOf[gated](w, "work", chanq.Config{})
	for _, stores := range []bool{true, false} {
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		w.Cleanup(open)
		p.C() <- chanq.Message[gated]{Body: gated{gate}} // its encoding blocks
		closing, cancel := context.WithCancel(context.Background())
		closed, flushed := make(chan error, 1), make(chan error, 1)
		go func() { closed <- p.Close(closing) }()
		w.within("Close begins", p.Done())
		go func() { flushed <- p.Flush(w.Soon()) }()
		pass(100 * time.Millisecond)
		require.Empty(w, flushed, "the message is not stored yet")
		if stores {
			open()
			require.NoError(w, testdb.Receive(w, flushed, "Flush returns"))
			require.NoError(w, <-closed)
			require.Equal(w, 1, testdb.Counted(w, q).Ready)
		} else {
			cancel()
			const stuck = "a codec does not return"
			require.ErrorContains(w, <-closed, stuck)
			require.ErrorContains(w, testdb.Receive(w, flushed, "Flush returns"), stuck)
			require.ErrorContains(w, p.Flush(w.Soon()), stuck, "also later")
			open()
			require.NoError(w, p.Close(w.Soon()))
		}
		cancel()
	}
}

// closeGivesUp: a driver or a hook does not return, and C was not used.
func closeGivesUp(w *world) {
	for _, where := range []string{"driver", "hook"} {
		gate, called := make(chan struct{}), make(chan struct{})
		cfg := chanq.Config{}
		if where == "hook" {
			cfg.Hooks.Sent = func(chanq.SentEvent) {
				close(called)
				<-gate
			}
		}
		q := w.Queue(where, cfg)
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		var hangs <-chan struct{} = called
		free := func() { close(gate) }
		if where == "driver" {
			st := w.Statements(where)
			hangs, free = w.stick(func(op faultdb.Op) bool { return enqueues(op, st) })
		}
		sent := make(chan error, 1)
		go func() {
			_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "sent"})
			sent <- err
		}()
		w.within("the "+where+" hangs", hangs)
		over, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, errors.New("the time is over"))
		err := p.Close(over)
		cancel()
		require.ErrorContains(w, err, "the time is over", where)
		if where == "driver" {
			var op *chanq.OpError
			require.ErrorAs(w, <-sent, &op)
			require.True(w, op.Unknown, "a statement contains the message")
		} else {
			require.NoError(w, <-sent)
		}
		free()
		require.NoError(w, p.Close(w.Soon()), "everything has ended")
	}
}

func closeStores(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{Linger: time.Minute, BatchRows: 7})
	for _, m := range testdb.Texts(numbers(50)...) {
		p.C() <- m
	}
	require.NoError(w, p.Close(w.Soon()))
	require.NoError(w, p.Close(w.Soon()), "again")
	require.Equal(w, numbers(50), testdb.Bodies(testdb.Leases(testdb.Lease(w, q, 50, time.Minute))))
}

func closeReturns(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxBody: 10}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	p.C() <- chanq.Message[string]{Body: "fits"}
	p.C() <- chanq.Message[string]{Body: strings.Repeat("x", 11)}
	require.ErrorIs(w, p.Flush(w.Soon()), chanq.ErrTooLarge)
	w.Eventually("the first is stored", func() bool { return testdb.Stats(w, q).Ready == 1 })
	broken := w.Failure(sqlbatch.Unknown)
	w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Cut(broken) })
	p.C() <- chanq.Message[string]{Body: "outage"}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var unsent *chanq.UnsentError[string]
	require.ErrorAs(w, p.Close(ctx), &unsent)
	require.Len(w, unsent.Unsent, 2)
	require.ErrorIs(w, unsent, chanq.ErrTooLarge)
	w.Faults.Inject(nil)
	outage := unsent.Unsent[1]
	require.Equal(w, "outage", outage.Message.Body)
	require.Equal(w, outage.Message.ID, testdb.Send(w, q, outage.Message)[0], "the message is sent again with its ID")
	require.Equal(w, []string{"fits", "outage"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, q, 2, time.Minute))))
}

func unsentTaken(w *world) {
	reported := make(chan chanq.UnsentEvent, 10)
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxBody: 10}, Hooks: chanq.Hooks{Unsent: func(e chanq.UnsentEvent) { reported <- e }}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{BufferBytes: 600})
	require.Empty(w, p.Unsent())
	for round := range 3 {
		for range 2 { // these fill the buffer
			p.C() <- chanq.Message[string]{Body: strings.Repeat("x", 11), Headers: map[string]string{"round": fmt.Sprint(round)}}
		}
		require.ErrorIs(w, p.Flush(w.Soon()), chanq.ErrTooLarge)
		require.ErrorContains(w, p.Flush(w.Soon()), "messages sent on C that could not be stored: 2, Unsent returns them", "again")
		sent := make(chan error, 1)
		go func() {
			_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "waits"})
			sent <- err
		}()
		pass(100 * time.Millisecond)
		require.Empty(w, sent, "there is no room for it")
		unsent := p.Unsent()
		require.Len(w, unsent, 2)
		for _, u := range unsent {
			require.ErrorIs(w, u.Err, chanq.ErrTooLarge)
			require.Equal(w, fmt.Sprint(round), u.Message.Headers["round"])
			e := testdb.Receive(w, reported, "the message is reported")
			require.Equal(w, chanq.UnsentEvent{Queue: "work", ID: u.Message.ID, Err: u.Err}, e)
		}
		require.NoError(w, testdb.Receive(w, sent, "there is room"))
		require.NoError(w, p.Flush(w.Soon()))
		require.Empty(w, p.Unsent(), "once")
	}
	p.C() <- chanq.Message[string]{Body: strings.Repeat("x", 11)}
	require.Error(w, p.Flush(w.Soon()))
	var left *chanq.UnsentError[string]
	require.ErrorAs(w, p.Close(w.Soon()), &left)
	require.Len(w, left.Unsent, 1, "messages that Unsent has not returned")
	require.Empty(w, p.Unsent())
	require.Equal(w, 3, testdb.Stats(w, q).Ready)
	require.Len(w, reported, 1)
}

func sendAfterClose(w *world) {
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	select {
	case <-p.Done():
		require.Fail(w, "not closed yet")
	default:
	}
	require.NoError(w, p.Close(w.Soon()))
	<-p.Done()
	_, err := p.Send(w.Soon(), chanq.Message[string]{})
	require.ErrorIs(w, err, chanq.ErrClosed)
	_, err = p.SendBatch(w.Soon(), testdb.Texts("a", "b")...)
	require.ErrorIs(w, err, chanq.ErrClosed)
	require.NoError(w, p.Flush(w.Soon()))
}

func wake(w *world) {
	q := w.Queue("work", alone)
	c := paused(w, q)
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "by Send"})
	require.NoError(w, err)
	require.Equal(w, "by Send", w.woken(c).Body)
	w.longPaused(c)
	tx := w.begin(w.DB)
	w.sendTx(q, tx, testdb.Texts("by SendTx")...)
	require.NoError(w, tx.Commit())
	q.Wake()
	require.Equal(w, "by SendTx", w.woken(c).Body)
}

// refusedByTrigger: a trigger of another program rejects one message of a batch.
func refusedByTrigger(w *world) {
	texts := map[string]string{
		"sqlserver": "CREATE TRIGGER dbo.refusing ON dbo.chanq_work AFTER INSERT AS IF EXISTS (SELECT 1 FROM inserted WHERE body = " + w.sqlBytes("refused") + ") THROW 51000, N'a trigger refuses it', 1;",
		"postgres": `CREATE FUNCTION refusing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'a trigger refuses it'; END $$;
			CREATE TRIGGER refusing BEFORE INSERT ON chanq_work FOR EACH ROW WHEN (NEW.body = ` + w.sqlBytes("refused") + `) EXECUTE FUNCTION refusing()`,
		"sqlite": "CREATE TRIGGER refusing BEFORE INSERT ON chanq_work WHEN CAST(NEW.body AS BLOB) = " + w.sqlBytes("refused") + " BEGIN SELECT RAISE(ABORT, 'a trigger refuses it'); END",
	}
	q := w.Queue("work", chanq.Config{})
	w.Define(texts[w.Engine.Dialect.Name()])
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	bodies := numbers(20)
	bodies[7] = "refused"
	_, err := p.SendBatch(w.Soon(), testdb.Texts(bodies...)...)
	require.ErrorContains(w, err, "a trigger refuses it")
	var failed *chanq.OpError
	require.ErrorAs(w, err, &failed)
	require.False(w, failed.Unknown)
	require.Equal(w, chanqadmin.Stats{Ready: 19}, testdb.Counted(w, q))
	_, err = q.Send(w.Soon(), testdb.Texts("refused")...)
	require.ErrorContains(w, err, "a trigger refuses it")
	require.NoError(w, p.Flush(w.Soon()))
	require.Equal(w, chanqadmin.Stats{Ready: 19}, testdb.Counted(w, q))
}

// failingMessage makes each statement that stores a certain message fail. Other messages are stored within seconds. In an ordered queue,
// later messages of its key are stored after it.
func failingMessage(w *world) {
	for i, class := range []sqlbatch.Class{sqlbatch.Refused, sqlbatch.RolledBack, sqlbatch.Unknown} {
		for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
			name, cfg, key, behind := "plain"+string(rune('a'+i)), chanq.Config{}, "", 1
			if kind == chanq.KindOrdered {
				name, cfg, key, behind = "ordered"+string(rune('a'+i)), orderedConfig, "k", 0
			}
			var isolated, events atomic.Int32
			cfg.Hooks.Isolated = func(e chanq.IsolatedEvent) {
				isolated.Add(int32(e.Change))
				if e.Part == "producer" && (e.Change > 0) == (e.Err != nil) {
					events.Add(1)
				}
			}
			q := w.Queue(name, cfg)
			p := testdb.Produce(w, q, chanq.ProducerConfig{})
			fails := faultdb.Fail(w.Failure(class))
			w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
				if carries(op, "poison") {
					return fails
				}
				return faultdb.Fault{}
			})
			p.C() <- chanq.Message[string]{Key: key, Body: "poison"}
			p.C() <- chanq.Message[string]{Key: key, Body: "behind"}
			for range 3 {
				ms := testdb.Texts(numbers(20)...)
				for i := range ms {
					if kind == chanq.KindOrdered {
						ms[i].Key = ms[i].Body
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), testdb.Of(10*time.Second, testdb.Patience))
				_, err := p.SendBatch(ctx, ms...)
				cancel()
				require.NoError(w, err, class)
			}
			w.Eventually("it is isolated", func() bool { return p.Stats().Isolated == 1 })
			require.Equal(w, 60+behind, testdb.Counted(w, q).Ready, "%v: later messages of its key wait for it", class)
			require.Equal(w, 2-behind, p.Stats().Pending)
			w.Faults.Inject(nil)
			require.NoError(w, p.Flush(w.Soon()))
			require.Equal(w, 62, testdb.Counted(w, q).Ready)
			require.Equal(w, chanq.ProducerStats{}, p.Stats())
			require.NoError(w, p.Close(w.Soon()))
			require.Zero(w, isolated.Load())
			require.EqualValues(w, 2, events.Load(), "it was isolated and later stored")
		}
	}
}

// storedAndLookFails: of two rows with keys one is stored and the other is a duplicate. The query for the message with that key fails until
// the stored message has been received and acked.
func storedAndLookFails(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, chanq.Message[string]{Body: "first", DedupKey: "taken", Delay: time.Hour})
	var acked atomic.Bool
	st, fails := w.Statements("work"), faultdb.Fail(w.Failure(sqlbatch.Refused))
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !acked.Load() && testdb.Runs(op, st.Find(make([][16]byte, 1), make([]string, 1))) {
			return fails
		}
		return faultdb.Fault{}
	})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	sent := make(chan []chanq.Receipt, 1)
	ctx := w.Soon()
	go func() {
		receipts, err := p.SendBatch(ctx, chanq.Message[string]{Body: "once", DedupKey: "new"}, chanq.Message[string]{Body: "second", DedupKey: "taken"})
		if err != nil {
			receipts = nil
		}
		sent <- receipts
	}()
	w.Eventually("it is stored", func() bool { return testdb.Counted(w, q).Ready == 1 })
	_, db := w.Connect() // without faults
	got := testdb.Lease(w, testdb.OpenOn[string](w, db, "work", chanq.Config{}), 1, time.Minute)
	require.Equal(w, "once", got[0].Body)
	require.NoError(w, got[0].Ack())
	acked.Store(true)
	receipts := <-sent
	require.Len(w, receipts, 2)
	require.False(w, receipts[0].Duplicate)
	require.True(w, receipts[1].Duplicate)
	require.Zero(w, testdb.Counted(w, q).Ready, "it is not stored again")
}
