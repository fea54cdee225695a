package guarantees

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

var piping = []test{
	{"PipeReplacesInputsByOutputs", pipeReplaces},
	{"PipeTreatsErrorsAsHandleDoes", pipeErrors},
	{"PipeStoresNoOutputOfAnInputThatWasLost", pipeLost},
	{"PipeStoresEachOutputOnceWhicheverOperationIsCut", pipeCuts},
	{"PipeDeadLettersAnInputWhoseOutputCannotBeStored", pipeBadOutput},
	{"PipeKeepsDedupKeysAndIDsOfOutputs", pipeKeys},
	{"PipeWakesConsumersOfItsOutputs", pipeWakes},
	{"PipeRefusesWhatItCannotDo", pipeRefuses},
	{"APipeOfAConsumerThatHasEndedReturns", pipeAfterTheEnd},
}

type piped struct {
	in, out *chanq.Queue[string]
	c       *chanq.Consumer[string]
	ended   chan error
}

func startPipe(w *world, cfg chanq.Config, ccfg chanq.ConsumerConfig, fn func(context.Context, *chanq.Lease[string]) ([]chanq.Message[string], error)) *piped {
	x := &piped{in: w.Queue("input", cfg), out: w.Queue("output", chanq.Config{Spec: chanq.Spec{MaxBody: 1000}, Notifier: chanq.NoNotifier{}}), ended: make(chan error, 1)}
	x.c = testdb.Start(w, x.in, ccfg)
	go func() { x.ended <- chanq.Pipe(x.c, x.out, 3, fn) }()
	return x
}

func (x *piped) stop(w *world) {
	w.Helper()
	x.c.Stop()
	require.NoError(w, <-x.ended)
	require.NoError(w, x.c.Shutdown(w.Soon()))
}

func pipeReplaces(w *world) {
	for _, cfg := range []chanq.Config{{}, {Spec: chanq.Spec{Retain: time.Hour}}} {
		x := startPipe(w, cfg, chanq.ConsumerConfig{}, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
			switch l.Body {
			case "none":
				return nil, nil
			case "many":
				return testdb.Texts(numbers(600)...), nil
			}
			return testdb.Texts(l.Body + "'"), nil
		})
		testdb.Send(w, x.in, testdb.Texts("a", "none", "many", "b")...)
		w.Eventually("all inputs are replaced", func() bool { return x.c.Stats().Acked == 4 })
		x.stop(w)
		got := testdb.Bodies(testdb.Leases(testdb.Lease(w, x.out, 602, time.Minute)))
		require.Subset(w, got, []string{"a'", "b'"})
		require.Subset(w, got, numbers(600))
		require.EqualValues(w, 4, x.c.Stats().Acked)
		if cfg.Retain > 0 {
			require.Equal(w, 4, testdb.Stats(w, x.in).Done)
		}
		w.purge(x.out, chanqadmin.StateLeased)
	}
}

func pipeErrors(w *world) {
	x := startPipe(w, chanq.Config{}, chanq.ConsumerConfig{}, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
		out := testdb.Texts("of " + l.Body)
		switch l.Body {
		case "retry after":
			return out, chanq.RetryAfter(time.Hour, errors.New("not now"))
		case "dead letter":
			return out, chanq.DeadLetter(errors.New("never"))
		case "panic":
			panic(chanq.DeadLetter(errors.New("aargh")))
		case "settled":
			return out, l.Nack(chanq.DeadLetter(errors.New("by the function")))
		}
		return out, nil
	})
	sent := testdb.Send(w, x.in, testdb.Texts("retry after", "dead letter", "settled", "fine")...)
	w.Eventually("all are handled", func() bool { return settled(x.c) == 4 })
	w.requireState(x.in, sent[0], chanqadmin.StateScheduled)
	w.requireState(x.in, sent[1], chanqadmin.StateDead)
	w.requireState(x.in, sent[2], chanqadmin.StateDead)
	for _, id := range sent[1:3] {
		require.Equal(w, chanq.CauseRejected, testdb.Get(w, x.in, id).Cause)
	}
	x.stop(w)
	require.Equal(w, []string{"of fine"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, x.out, 1, time.Minute))))
	require.Equal(w, chanqadmin.Stats{Leased: 1}, testdb.Counted(w, x.out))
}

func pipeLost(w *world) {
	begun, gate := make(chan struct{}, 2), make(chan struct{})
	x := startPipe(w, chanq.Config{}, chanq.ConsumerConfig{LeaseFor: time.Minute}, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
		begun <- struct{}{}
		<-gate
		return testdb.Texts("of " + l.Body), nil
	})
	sent := testdb.Send(w, x.in, testdb.Texts("lost", "kept")...)
	<-begun
	<-begun
	_, err := x.in.Cancel(w.Soon(), sent[0])
	require.NoError(w, err)
	close(gate)
	w.Eventually("the other is replaced", func() bool { return testdb.Stats(w, x.out).Ready == 1 })
	x.stop(w)
	require.Equal(w, []string{"of kept"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, x.out, 1, time.Minute))))
	require.EqualValues(w, 1, x.c.Stats().Lost)
	require.EqualValues(w, 1, x.c.Stats().Acked)
}

func pipeCuts(w *world) {
	in, out := w.Queue("input", chanq.Config{}), w.Queue("output", chanq.Config{})
	for _, applied := range []bool{false, true} {
		// 12 covers all operations of the transaction and some that follow.
		for i := range 12 {
			testdb.Send(w, in, testdb.Texts("a", "b")...)
			c := testdb.Start(w, in, chanq.ConsumerConfig{LeaseFor: steadyLease})
			w.Eventually("both are buffered", func() bool { return c.Stats().Buffered == 2 })
			// The count starts with the first call of the function, when the claims have ended.
			var first sync.Once
			hits := make(chan *testdb.Strike, 1)
			ended := make(chan error, 1)
			go func() {
				ended <- chanq.Pipe(c, out, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
					first.Do(func() { hits <- w.StrikeNth(i, w.Broken(applied)) })
					return []chanq.Message[string]{{Body: l.Body + "1"}, {Body: l.Body + "2"}}, nil
				})
			}()
			hit := <-hits
			// If the ack was cut, the message might be neither: its lease might expire before the
			// outcome is known.
			w.Eventually("no input is held", func() bool {
				return c.Stats().Held == 0 && (c.Stats().Acked+c.Stats().Lost >= 2 || hit.Struck() != "" && testdb.Counted(w, in) == chanqadmin.Stats{})
			})
			w.Faults.Inject(nil)
			w.Eventually("no input is left", func() bool { return testdb.Counted(w, in) == chanqadmin.Stats{} })
			c.Stop()
			require.NoError(w, <-ended)
			require.NoError(w, c.Shutdown(w.Soon()))
			note := fmt.Sprintf("applied: %v, %s", applied, hit.Struck())
			require.Equal(w, chanqadmin.Stats{Ready: 4}, testdb.Counted(w, out), note)
			require.ElementsMatch(w, []string{"a1", "a2", "b1", "b2"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, out, 4, time.Minute))), note)
			w.purge(out, chanqadmin.StateLeased)
		}
	}
}

func pipeBadOutput(w *world) {
	x := startPipe(w, chanq.Config{}, chanq.ConsumerConfig{}, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
		if l.Body == "bad" {
			return testdb.Texts("fits", strings.Repeat("x", 1001)), nil
		}
		return testdb.Texts("good"), nil
	})
	sent := testdb.Send(w, x.in, testdb.Texts("bad", "good")...)
	w.Eventually("the bad one is dead", func() bool { return testdb.Stats(w, x.in).Dead == 1 })
	dead := testdb.Get(w, x.in, sent[0])
	require.Contains(w, dead.LastError, "output 1")
	require.Equal(w, chanq.CauseOutput, dead.Cause)
	w.Eventually("the good one is replaced", func() bool { return testdb.Stats(w, x.out).Ready == 1 })
	x.stop(w)
}

func pipeKeys(w *world) {
	id := chanq.NewID()
	x := startPipe(w, chanq.Config{}, chanq.ConsumerConfig{}, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
		return []chanq.Message[string]{{Body: "keyed", DedupKey: "k"}, {Body: "given", ID: id}, {Body: "plain"}}, nil
	})
	testdb.Send(w, x.in, testdb.Texts("a", "b", "c")...)
	w.Eventually("all inputs are replaced", func() bool { return x.c.Stats().Acked == 3 })
	x.stop(w)
	require.ElementsMatch(w, []string{"keyed", "given", "plain", "plain", "plain"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, x.out, 5, time.Minute))))
	require.Equal(w, chanqadmin.Stats{Leased: 5}, testdb.Counted(w, x.out))
}

func pipeWakes(w *world) {
	x := startPipe(w, chanq.Config{}, chanq.ConsumerConfig{}, passOn)
	next := paused(w, x.out)
	testdb.Send(w, x.in, testdb.Texts("a")...)
	require.Equal(w, "a", w.woken(next).Body)
	w.longPaused(next)
	// An applied transaction with unknown outcome also notifies.
	hit := w.Strike(w.Broken(true), func(op faultdb.Op) bool { return op.Kind == faultdb.Commit })
	testdb.Send(w, x.in, testdb.Texts("b")...)
	require.Equal(w, "b", w.woken(next).Body)
	require.NotEmpty(w, hit.Struck())
	x.stop(w)
}

func pipeRefuses(w *world) {
	q := w.Queue("work", chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.ErrorContains(w, chanq.Pipe[string, string](nil, q, 1, passOn), "nil")
	require.ErrorContains(w, chanq.Pipe[string, string](c, nil, 1, passOn), "nil")
	require.ErrorContains(w, chanq.Pipe[string, string](c, q, 1, nil), "nil")
	require.ErrorContains(w, chanq.Pipe(c, q, 0, passOn), "workers")
	_, db := w.Connect()
	elsewhere := testdb.OpenOn[string](w, db, "work", chanq.Config{})
	require.ErrorContains(w, chanq.Pipe(c, elsewhere, 1, passOn), "same *sql.DB")
}

func pipeAfterTheEnd(w *world) {
	q := w.Queue("work", chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, c.Shutdown(w.Soon()))
	require.NoError(w, chanq.Pipe(c, q, 1, passOn))
}
