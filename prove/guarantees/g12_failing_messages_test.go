package guarantees

import (
	"bytes"
	"context"
	"encoding/hex"
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

// A message that fails alone, for each kind and class of failure, delays only itself.
var failingMessages = append([]test{
	{"G12_AMessageWhoseSendTimedOutIsNotSentAgain", sendGaveUp},
	{"G12_AnInputThatCannotBeAckedDelaysNoOther", failingInput},
	{"ASettleThatIsIsolatedIsReported", isolatedSettle},
	{"EveryCallThatTakesAContextReturnsWhenItEnds", callsReturn},
}, failingSettlesOfEachKind()...)

// classesAlone are the classes of failures that a repetition might resolve: one on the real clock, two in the default tier.
func (w *world) classesAlone() []sqlbatch.Class {
	if !w.Engine.Bubble {
		return []sqlbatch.Class{sqlbatch.Refused}
	}
	few := []sqlbatch.Class{sqlbatch.Refused, outOfTime}
	return testdb.Of(few, append(few, sqlbatch.RolledBack, sqlbatch.Unknown))
}

// slowTry is the timeout of statements in these tests.
const slowTry = time.Second

// names reports whether an argument of a statement contains the ID of a message.
func names(op faultdb.Op, id chanq.ID) bool {
	for _, arg := range op.Args {
		switch v := arg.Value.(type) {
		case []byte:
			if bytes.Contains(v, id[:]) {
				return true
			}
		case string:
			if strings.Contains(v, hex.EncodeToString(id[:])) {
				return true
			}
		}
	}
	return false
}

// sendGaveUp makes each statement that stores a certain message fail until its Send gives up.
func sendGaveUp(w *world) {
	for _, inFlight := range []int{1, 2} {
		for _, class := range w.classesAlone() {
			q := w.Queue(fmt.Sprint("work", inFlight, className(class)), chanq.Config{StatementTimeout: slowTry})
			p := testdb.Produce(w, q, chanq.ProducerConfig{InFlight: inFlight})
			var tried atomic.Int32
			fails := w.failing(class)
			w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
				if !carries(op, "poison") {
					return faultdb.Fault{}
				}
				tried.Add(1)
				return fails
			})
			for range 3 {
				ctx, cancel := context.WithTimeout(context.Background(), 2*slowTry)
				gaveUp := make(chan error, 1)
				go func() {
					_, err := p.Send(ctx, chanq.Message[string]{Body: "poison"})
					gaveUp <- err
				}()
				_, err := p.SendBatch(w.Soon(), testdb.Texts(numbers(20)...)...)
				require.NoError(w, err, class)
				require.ErrorIs(w, <-gaveUp, context.DeadlineExceeded, class)
				cancel()
			}
			require.Positive(w, tried.Load())
			require.NoError(w, p.Flush(w.Soon()), "%v: no message is left", class)
			before := tried.Load()
			for range 3 {
				_, err := p.SendBatch(w.Soon(), testdb.Texts(numbers(20)...)...)
				require.NoError(w, err, class)
			}
			pass(2 * slowTry)
			require.Equal(w, before, tried.Load(), class)
			require.Equal(w, chanq.ProducerStats{}, p.Stats())
			w.Faults.Inject(nil)
			require.NoError(w, p.Close(w.Soon()))
			require.Equal(w, chanqadmin.Stats{Ready: 120}, testdb.Counted(w, q))
		}
	}
}

// settlesAny reports whether an operation settles leases, in any way.
func settlesAny(op faultdb.Op, q sqlbatch.Queue) bool {
	for _, q := range []sqlbatch.Queue{q, q.SkipLocked()} {
		for _, st := range []sqlbatch.Statement{q.Ack(nil), q.Archive(nil), q.Nack(nil), q.Snooze(nil), q.Release(nil), q.DeadLetter(nil)} {
			if testdb.Runs(op, st) || len(st.Prior) > 0 && testdb.Runs(op, st.Prior[0]) {
				return true
			}
		}
	}
	return false
}

// failingSettlesOfEachKind makes each statement that settles a certain message in a certain way fail. Acks of other messages are stored
// meanwhile; if the way is an ack, they use the same statement.
func failingSettlesOfEachKind() (tests []test) {
	ways := append(settles[:len(settles):len(settles)], struct {
		name  string
		do    func(*chanq.Lease[string]) error
		state chanqadmin.State
	}{"release after", func(l *chanq.Lease[string]) error { return l.Nack(chanq.Snooze(time.Hour, nil)) }, chanqadmin.StateScheduled})
	for name, cfg := range map[string]chanq.Config{"plain": {}, "retained": {Spec: chanq.Spec{Retain: time.Hour}}, "ordered": orderedConfig} {
		for _, way := range ways {
			tests = append(tests, test{"G12_ASettleThatFailsAloneDelaysNoOther_on=" + name + "_settle=" + way.name, func(w *world) {
				for i, class := range w.classesAlone() {
					failingSettle(w, fmt.Sprint("work", i), cfg, class, way.do, way.state)
				}
			}})
		}
	}
	return tests
}

func failingSettle(w *world, name string, cfg chanq.Config, class sqlbatch.Class, settle func(*chanq.Lease[string]) error, state chanqadmin.State) {
	const count = 23
	var lost losses
	cfg.Hooks, cfg.StatementTimeout = lost.hooks(), slowTry
	q := testdb.QueueOf[string](w, name, cfg)
	w.sendApart(q, numbers(count)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 5 * steadyLease, Backoff: func(*chanq.Delivery, error) time.Duration { return 0 }})
	leases := testdb.Take(w, c, count)
	st, bad, fails := w.Engine.Dialect.Queue(sqlbatch.Names{Queue: name, Slots: cfg.Slots}), leases[count/2], w.failing(class)
	var failed atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if settlesAny(op, st) && names(op, bad.ID) {
			failed.Add(1)
			return fails
		}
		return faultdb.Fault{}
	})
	for _, l := range leases {
		if l == bad {
			require.NoError(w, settle(l))
		} else {
			require.NoError(w, l.Ack())
		}
	}
	for _, l := range leases {
		if l != bad {
			require.NoError(w, l.Wait(w.Soon()), class)
		}
	}
	w.Eventually("it fails several times", func() bool { return failed.Load() > 3 })
	require.Equal(w, 1, c.Stats().Held, "%v: the others were settled", class)
	require.Equal(w, 1, testdb.Counted(w, q).Ready+testdb.Counted(w, q).Leased)
	c.Stop() // the released message is not redelivered
	w.Faults.Inject(nil)
	require.NoError(w, bad.Wait(w.Soon()), class)
	w.requireState(q, bad.ID, map[bool]chanqadmin.State{false: state, true: chanqadmin.StateDone}[state == "" && cfg.Retain > 0], class)
	require.Empty(w, lost.but(), class)
	require.NoError(w, c.Shutdown(w.Soon()))
}

// failingInput makes each transaction of a Pipe that acks a certain input fail.
func failingInput(w *world) {
	for _, class := range w.classesAlone() {
		if class == outOfTime && w.oneWriter() {
			continue // its only session is in use meanwhile
		}
		x := startPipe(w, chanq.Config{StatementTimeout: troubleLease}, chanq.ConsumerConfig{LeaseFor: troubleLease}, passOn)
		_, db := w.Connect() // without faults
		other := testdb.OpenOn[string](w, db, "input", chanq.Config{})
		require.NoError(w, testdb.Pause(w.Soon(), other))
		bad := testdb.Send(w, other, testdb.Texts(append([]string{"stuck"}, numbers(20)...)...)...)[0]
		st, fails := w.Statements("input"), w.failing(class)
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if names(op, bad) && (testdb.Runs(op, st.InOwnTx().Ack(nil)) || testdb.Runs(op, st.InOwnTx().SkipLocked().Ack(nil))) {
				return fails
			}
			return faultdb.Fault{}
		})
		require.NoError(w, testdb.Admin(other).Resume(w.Soon(), chanqadmin.Change{}))
		w.Eventually("the others are replaced", func() bool { return x.c.Stats().Acked == 20 })
		require.Equal(w, 1, testdb.Stats(w, other).Leased, class)
		w.Faults.Inject(nil)
		w.Eventually("the first message is replaced", func() bool { return testdb.Stats(w, x.out).Ready == 21 })
		x.stop(w)
		require.Zero(w, testdb.Counted(w, other))
		w.purge(x.out, chanqadmin.StateReady)
	}
}

// callsReturn makes the database stop responding. Whether or not the driver respects its context, each call returns when its own context
// ends, except that Migrate waits for the driver.
func callsReturn(w *world) {
	gate := make(chan struct{})
	free := sync.OnceFunc(func() {
		w.Faults.Inject(nil)
		close(gate)
	})
	w.Cleanup(free)
	for name, fault := range map[string]faultdb.Fault{"hangs": faultdb.Hang(), "sticks": faultdb.Stick(gate)} {
		q := w.Queue("work", chanq.Config{})
		testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		leases := testdb.Take(w, c, 3)
		p := testdb.Produce(w, q, chanq.ProducerConfig{BufferBytes: 2000})
		w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return fault })
		id := leases[0].ID
		for _, call := range []struct {
			name string
			do   func(context.Context) error
		}{
			{"Send", func(ctx context.Context) error { _, err := p.Send(ctx, testdb.Texts("x")[0]); return err }},
			{"SendBatch", func(ctx context.Context) error {
				_, err := p.SendBatch(ctx, testdb.Texts(numbers(100)...)...) // more than fit into the buffer
				return err
			}},
			{"Producer.Flush", func(ctx context.Context) error {
				select {
				case p.C() <- testdb.Texts("y")[0]:
				case <-ctx.Done():
				}
				return p.Flush(ctx)
			}},
			{"Receive", func(ctx context.Context) error { _, err := c.Receive(ctx, 1, 0); return err }},
			{"Extend", func(ctx context.Context) error { return leases[1].Extend(ctx, 2*time.Hour) }},
			{"Ack", func(ctx context.Context) error { return chanq.Ack(ctx, leases[0]) }},
			{"Wait", func(ctx context.Context) error { return leases[0].Wait(ctx) }},
			{"Consumer.Flush", c.Flush},
			{"Stats", func(ctx context.Context) error { _, err := testdb.Admin(q).Stats(ctx); return err }},
			{"Empty", func(ctx context.Context) error { _, err := q.Empty(ctx); return err }},
			{"Peek", func(ctx context.Context) error { _, err := testdb.Peek(ctx, q, chanqadmin.StateReady, 1); return err }},
			{"List", func(ctx context.Context) error {
				_, err := testdb.Admin(q).List(ctx, chanqadmin.Select{State: chanqadmin.StateReady}, chanqadmin.List{Limit: 1})
				return err
			}},
			{"Get", func(ctx context.Context) error { _, err := testdb.Admin(q).Get(ctx, id); return err }},
			{"Cancel", func(ctx context.Context) error { _, err := q.Cancel(ctx, id); return err }},
			{"Purge", func(ctx context.Context) error {
				_, err := testdb.Purge(ctx, q, chanqadmin.StateDead)
				return err
			}},
			{"PurgeIDs", func(ctx context.Context) error { _, err := testdb.PurgeIDs(ctx, q, id); return err }},
			{"Redrive", func(ctx context.Context) error { _, err := testdb.Redrive(ctx, q, 1); return err }},
			{"RedriveIDs", func(ctx context.Context) error { _, err := testdb.RedriveIDs(ctx, q, id); return err }},
			{"Pause", func(ctx context.Context) error { return testdb.Pause(ctx, q) }}, {"Resume", func(ctx context.Context) error { return testdb.Admin(q).Resume(ctx, chanqadmin.Change{}) }},
			{"Consumers", func(ctx context.Context) error { _, err := testdb.Admin(q).Consumers(ctx); return err }},
			{"History", func(ctx context.Context) error {
				_, err := testdb.Admin(q).History(ctx, time.Now(), time.Minute)
				return err
			}},
			{"Open", func(ctx context.Context) error {
				_, err := chanq.Open[string](ctx, w.DB, "work", chanq.Config{})
				return err
			}},
			{"Migrate", func(ctx context.Context) error { return chanq.Migrate(ctx, w.DB, "work", chanq.Config{}) }},
			{"Shutdown", c.Shutdown},
			{"Close", p.Close},
		} {
			if call.name == "Migrate" && name == "sticks" {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), steadyLease/5)
			began, returned := time.Now(), make(chan error, 1)
			go func() { returned <- call.do(ctx) }()
			select {
			case err := <-returned:
				var unsent *chanq.UnsentError[string]
				require.True(w, errors.Is(err, context.DeadlineExceeded) || errors.As(err, &unsent), "%s, the driver %s: %v", call.name, name, err)
				if w.Engine.Bubble {
					most := steadyLease/5 + 100*time.Millisecond
					if call.name == "Shutdown" {
						most += atEnd
					}
					require.LessOrEqual(w, time.Since(began), most, "%s, the driver %s", call.name, name)
				}
			case <-time.After(testdb.Patience):
				require.Fail(w, "the call does not return", "%s, the driver %s", call.name, name)
			}
			cancel()
		}
		w.Faults.Inject(nil)
		if name == "sticks" {
			free()
		}
		require.NoError(w, c.Shutdown(w.Soon()))
		require.NoError(w, p.Close(w.Soon()))
	}
}

func deadLetters(op faultdb.Op, q sqlbatch.Queue) bool {
	for _, st := range []sqlbatch.Statement{q.DeadLetter(nil), q.SkipLocked().DeadLetter(nil)} {
		if testdb.Runs(op, st) || len(st.Prior) > 0 && testdb.Runs(op, st.Prior[0]) {
			return true
		}
	}
	return false
}

func isolatedSettle(w *world) {
	var mu sync.Mutex
	var events []chanq.IsolatedEvent
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Isolated: func(e chanq.IsolatedEvent) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}}})
	testdb.Send(w, q, testdb.Texts(numbers(3)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 5 * steadyLease})
	leases := testdb.Take(w, c, 3)
	st, fails := w.Statements("work"), faultdb.Fail(w.Failure(sqlbatch.Refused))
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if deadLetters(op, st) {
			return fails
		}
		return faultdb.Fault{}
	})
	require.NoError(w, leases[0].Nack(chanq.DeadLetter(nil)))
	for _, l := range leases[1:] {
		require.NoError(w, l.Ack())
	}
	waits(w, leases[1:])
	w.Eventually("it is isolated", func() bool { return c.Stats().Isolated == 1 })
	require.Equal(w, 1, c.Stats().Settling)
	w.Faults.Inject(nil)
	waits(w, leases[:1])
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Zero(w, c.Stats().Isolated)
	require.Len(w, events, 2)
	require.Error(w, events[0].Err)
	events[0].Err = nil
	require.Equal(w, []chanq.IsolatedEvent{
		{Queue: "work", Part: "consumer", Items: 1, Change: 1}, {Queue: "work", Part: "consumer", Change: -1},
	}, events)
}
