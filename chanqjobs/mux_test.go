package chanqjobs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
)

var errBad = errors.New("no")

// tally counts the jobs that were handled, by kind and number.
type tally struct {
	mu   sync.Mutex
	jobs map[string]int
}

func (t *tally) add(l *chanq.Delivery, body any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.jobs == nil {
		t.jobs = map[string]int{}
	}
	t.jobs[fmt.Sprint(l.Type, " ", body)]++
}

// counts returns a copy.
func (t *tally) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.jobs)
}

// The three ways to receive jobs handle the same ones, each once.
func TestHandlersChannelsAndPipesHandleTheSameJobs(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		const n = 10_000
		var all []chanq.Message[chanqjobs.Job]
		want := map[string]int{}
		for i := range n {
			m, body := charge.New(i), any(i)
			switch i % 3 {
			case 1:
				m, body = welcome.New(mail{i, "ada"}), mail{i, "ada"}
			case 2:
				m, body = note.New(fmt.Sprint(i)), fmt.Sprint(i)
			}
			all = append(all, m)
			want[fmt.Sprint(m.Type, " ", body)] = 1
		}
		for name, way := range map[string]func(c *chanq.Consumer[chanqjobs.Job], t *tally) error{
			"handlers": func(c *chanq.Consumer[chanqjobs.Job], t *tally) error {
				return c.Handle(4, counting(t).Handle)
			},
			"channels": func(c *chanq.Consumer[chanqjobs.Job], t *tally) error { return byChannels(c, t) },
			"pipe": func(c *chanq.Consumer[chanqjobs.Job], t *tally) error {
				out := jobsOf(w, "output", chanq.Config{})
				m := chanqjobs.NewMux()
				chanqjobs.HandleTo(m, charge, func(_ context.Context, l *chanq.Lease[int]) ([]chanq.Message[chanqjobs.Job], error) {
					t.add(&l.Delivery, l.Body)
					return []chanq.Message[chanqjobs.Job]{note.New("paid"), note.New("booked")}, nil
				}, chanqjobs.Options{})
				chanqjobs.Handle(m, welcome, count[mail](t), chanqjobs.Options{})
				chanqjobs.Handle(m, note, count[string](t), chanqjobs.Options{})
				err := chanq.Pipe(c, out, 4, m.Step)
				require.Equal(w, 2*(n+2)/3, testdb.Counted(w, out).Ready, "two for each charge")
				return err
			},
		} {
			var got tally
			q := jobsOf(w, name, chanq.Config{})
			testdb.Send(w, q, all...)
			require.NoError(w, way(testdb.Start(w, q, chanq.ConsumerConfig{StopWhenIdle: true}), &got))
			require.Equal(w, want, got.counts(), name)
			require.True(w, testdb.Empty(w, q), name)
		}
	})
}

func count[T any](t *tally) chanq.Handler[T] {
	return func(_ context.Context, l *chanq.Lease[T]) error {
		t.add(&l.Delivery, l.Body)
		return nil
	}
}

func counting(t *tally) *chanqjobs.Mux {
	m := chanqjobs.NewMux()
	chanqjobs.Handle(m, charge, count[int](t), chanqjobs.Options{})
	chanqjobs.Handle(m, welcome, count[mail](t), chanqjobs.Options{})
	chanqjobs.Handle(m, note, count[string](t), chanqjobs.Options{})
	return m
}

// byChannels gets two kinds by channels, one of them in a loop, and one by a handler.
func byChannels(c *chanq.Consumer[chanqjobs.Job], t *tally) error {
	m := chanqjobs.NewMux()
	charges, mails := chanqjobs.Chan(m, charge), chanqjobs.Chan(m, welcome)
	chanqjobs.Handle(m, note, count[string](t), chanqjobs.Options{})
	errs := make(chan error, 3)
	go func() { errs <- m.Split(c.C(), 2) }()
	go func() { errs <- chanq.Handle(mails, 2, count[mail](t)) }()
	for l := range charges {
		t.add(&l.Delivery, l.Body)
		if err := l.Ack(); err != nil {
			return err
		}
	}
	err := errors.Join(<-errs, <-errs)
	return errors.Join(err, c.Shutdown(context.Background()))
}

func TestBadRegistrationsPanic(t *testing.T) {
	options := func(o chanqjobs.Options) func(*chanqjobs.Mux) {
		return func(m *chanqjobs.Mux) { chanqjobs.Handle(m, charge, nothing[int], o) }
	}
	convert := func(string) (int, error) { return 0, nil }
	for want, register := range map[string]func(*chanqjobs.Mux){
		`chanqjobs: kind "charge": Options.Timeout is -1ns: must not be negative`:   options(chanqjobs.Options{Timeout: -1}),
		`chanqjobs: kind "charge": Options.MaxAttempts is -1: must not be negative`: options(chanqjobs.Options{MaxAttempts: -1}),
		`chanqjobs: kind "charge": the function is nil`: func(m *chanqjobs.Mux) {
			chanqjobs.Handle(m, charge, nil, chanqjobs.Options{})
		},
		`chanqjobs: kind "note": the function is nil`: func(m *chanqjobs.Mux) {
			chanqjobs.Upgrade(m, note, charge, convert, nil, chanqjobs.Options{})
		},
	} {
		require.PanicsWithValue(t, want, func() { register(chanqjobs.NewMux()) })
	}

	registrations := []func(*chanqjobs.Mux){
		options(chanqjobs.Options{}),
		func(m *chanqjobs.Mux) { chanqjobs.Chan(m, charge) },
		func(m *chanqjobs.Mux) {
			chanqjobs.Upgrade(m, charge, note, func(int) (string, error) { return "", nil }, nothing[string], chanqjobs.Options{})
		},
	}
	twice := regexp.MustCompile(`^chanqjobs: kind "charge": it is registered at \S*mux_test\.go:(\d+), and again at \S*mux_test\.go:(\d+)$`)
	for i, first := range registrations {
		m := chanqjobs.NewMux()
		first(m)
		for j, second := range registrations {
			func() {
				defer func() {
					places := twice.FindStringSubmatch(fmt.Sprint(recover()))
					require.NotNil(t, places)
					require.Equal(t, i == j, places[1] == places[2], "the two places are named")
				}()
				second(m)
			}()
		}
	}
}

func TestAKindHasItsOwnLimitOfAttempts(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{})
		ids := testdb.Send(w, q, charge.New(1), welcome.New(mail{}), note.New("x"), note.New("snoozed"))
		var calls tally
		m := chanqjobs.NewMux()
		chanqjobs.Handle(m, charge, func(_ context.Context, l *chanq.Lease[int]) error {
			calls.add(&l.Delivery, l.Failures())
			return chanq.RetryAfter(time.Millisecond, errBad)
		}, chanqjobs.Options{MaxAttempts: 3})
		chanqjobs.Handle(m, welcome, func(_ context.Context, l *chanq.Lease[mail]) error {
			calls.add(&l.Delivery, l.Failures())
			panic("aargh")
		}, chanqjobs.Options{MaxAttempts: 2})
		chanqjobs.Handle(m, note, func(_ context.Context, l *chanq.Lease[string]) error {
			calls.add(&l.Delivery, l.Body)
			switch {
			case l.Body == "x":
				return chanq.DeadLetter(errBad)
			case calls.counts()["note snoozed"] < 5:
				return chanq.Snooze(0, errBad)
			}
			return nil
		}, chanqjobs.Options{MaxAttempts: 1})
		handle(w, q, 4, m.Handle, chanq.ConsumerConfig{Backoff: soon})
		require.Equal(w, map[string]int{"charge 0": 1, "charge 1": 1, "charge 2": 1, "welcome 0": 1, "welcome 1": 1, "note x": 1, "note snoozed": 5},
			calls.counts())
		for i, want := range []struct {
			cause    chanq.Cause
			attempts int
			text     string
		}{{chanq.CauseExhausted, 3, "no"}, {chanq.CauseExhausted, 2, "panic: aargh\n"}, {chanq.CauseRejected, 1, "no"}} {
			e := testdb.Get(w, q, ids[i])
			require.Equal(w, chanqadmin.StateDead, e.State)
			require.Equal(w, want.cause, e.Cause)
			require.Equal(w, want.attempts, e.Attempts)
			require.Contains(w, e.LastError, want.text)
		}
		require.Contains(w, testdb.Get(w, q, ids[1]).LastError, "mux_test.go", "the stack names the handler")
	})
}

// Expired leases, of processes that died, are no failures.
func TestExpiredLeasesDoNotCountForTheLimitOfAKind(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{})
		testdb.Send(w, q, charge.New(1))
		w.Hold("jobs", 1, 100*time.Millisecond)
		w.Hold("jobs", 1, 100*time.Millisecond)
		m := chanqjobs.NewMux()
		calls := 0
		chanqjobs.Handle(m, charge, func(_ context.Context, l *chanq.Lease[int]) error {
			if calls++; calls < 3 {
				return errBad
			}
			return nil
		}, chanqjobs.Options{MaxAttempts: 3})
		handle(w, q, 1, m.Handle, chanq.ConsumerConfig{Backoff: soon})
		require.Equal(w, 3, calls)
		require.True(w, testdb.Empty(w, q))
	})
}

func TestAKindHasItsOwnBackoff(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{})
		ids := testdb.Send(w, q, charge.New(1), charge.New(2), charge.New(3), welcome.New(mail{}))
		var seen atomic.Int64
		m := chanqjobs.NewMux()
		chanqjobs.Handle(m, charge, func(_ context.Context, l *chanq.Lease[int]) error {
			switch l.Body {
			case 2:
				panic(errBad)
			case 3:
				return chanq.RetryAfter(time.Minute, errBad)
			}
			return errBad
		}, chanqjobs.Options{Backoff: func(d *chanq.Delivery, err error) time.Duration {
			require.ErrorContains(w, err, "no")
			require.Equal(w, "charge", d.Type)
			seen.Add(1)
			return 24 * time.Hour
		}})
		chanqjobs.Handle(m, welcome, func(context.Context, *chanq.Lease[mail]) error { return errBad }, chanqjobs.Options{MaxAttempts: 2})
		began := time.Now()
		c := testdb.Start(w, q, chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { return time.Hour }})
		ended := make(chan error, 1)
		go func() { ended <- c.Handle(1, m.Handle) }()
		w.Eventually("all have failed", func() bool { return c.Stats().Nacked == 4 })
		c.Stop()
		require.NoError(w, testdb.Receive(w, ended, "Handle returns"))
		for i, delay := range []time.Duration{24 * time.Hour, 24 * time.Hour, time.Minute, time.Hour} {
			require.WithinDuration(w, began.Add(delay), testdb.Get(w, q, ids[i]).DueAt, 10*time.Second, i)
		}
		require.EqualValues(w, 2, seen.Load())
	})
}

func TestATimeoutIsOfOneKindAndNamesIt(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{})
		ids := testdb.Send(w, q, charge.New(1), charge.New(2), welcome.New(mail{}))
		m := chanqjobs.NewMux()
		chanqjobs.Handle(m, charge, func(ctx context.Context, l *chanq.Lease[int]) error {
			if l.Body == 2 {
				return errBad // in time
			}
			<-ctx.Done()
			return fmt.Errorf("pay: %w", ctx.Err())
		}, chanqjobs.Options{Timeout: 10 * time.Second, MaxAttempts: 1})
		chanqjobs.Handle(m, welcome, func(ctx context.Context, _ *chanq.Lease[mail]) error {
			_, limited := ctx.Deadline()
			require.False(w, limited)
			time.Sleep(time.Minute)
			return ctx.Err()
		}, chanqjobs.Options{})
		began := time.Now()
		handle(w, q, 3, m.Handle, chanq.ConsumerConfig{})
		require.Equal(w, `the kind "charge" took longer than its Options.Timeout of 10s: pay: context deadline exceeded`,
			testdb.Get(w, q, ids[0]).LastError)
		require.Equal(w, "no", testdb.Get(w, q, ids[1]).LastError)
		require.WithinDuration(w, began.Add(10*time.Second), testdb.Get(w, q, ids[0]).EndedAt, time.Second)
	})
}

// An old kind is handled as the new one, whose handler sees one type.
func TestJobsOfAnOldKindAreHandledAsTheNewOne(t *testing.T) {
	type invoice struct{ Euros float64 }
	type invoiceV2 struct{ Cents int }
	v1, v2 := chanqjobs.Define[invoice]("invoice"), chanqjobs.Define[invoiceV2]("invoice.v2")
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{})
		ids := testdb.Send(w, q, v1.New(invoice{1.5}), v2.New(invoiceV2{99}), v1.New(invoice{-1}))
		var got tally
		m := chanqjobs.NewMux()
		handler := func(_ context.Context, l *chanq.Lease[invoiceV2]) error {
			got.add(&l.Delivery, l.Body.Cents)
			return nil
		}
		convert := func(i invoice) (invoiceV2, error) {
			if i.Euros < 0 {
				return invoiceV2{}, errBad
			}
			return invoiceV2{int(100 * i.Euros)}, nil
		}
		chanqjobs.Handle(m, v2, handler, chanqjobs.Options{})
		chanqjobs.Upgrade(m, v1, v2, convert, handler, chanqjobs.Options{})
		handle(w, q, 3, m.Handle, chanq.ConsumerConfig{})
		require.Equal(w, map[string]int{"invoice.v2 150": 1, "invoice.v2 99": 1}, got.counts())
		dead := testdb.Get(w, q, ids[2])
		require.Equal(w, chanq.CauseUndecodable, dead.Cause)
		require.Equal(w, `chanq: cannot decode: from "invoice" to "invoice.v2": no`, dead.LastError)
	})
}

func TestAnUndecodableBodyIsDeadWithItsCause(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		var mu sync.Mutex
		var events []chanq.DeadEvent
		q := jobsOf(w, "jobs", chanq.Config{Hooks: chanq.Hooks{Dead: func(e chanq.DeadEvent) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}}})
		id := testdb.Send(w, q, chanq.Message[chanqjobs.Job]{Type: "charge", Body: note.New(`{"secret": 4711}`).Body})[0]
		m := chanqjobs.NewMux()
		chanqjobs.Handle(m, charge, nothing[int], chanqjobs.Options{})
		handle(w, q, 1, m.Handle, chanq.ConsumerConfig{})
		e := testdb.Get(w, q, id)
		require.Equal(w, chanq.CauseUndecodable, e.Cause)
		require.Contains(w, e.LastError, `a job of the kind "charge": json: cannot unmarshal object`)
		require.NotContains(w, e.RedactedError(), "unmarshal")
		mu.Lock()
		defer mu.Unlock()
		require.Len(w, events, 1)
		require.Equal(w, chanq.CauseUndecodable, events[0].Cause)
		require.NotContains(w, events[0].Reason, "unmarshal", "the error of a decoder can quote the body")
	})
}

// A kind that is registered for another way to receive jobs is not handled by this one.
func TestAKindIsHandledInTheWayItIsRegisteredFor(t *testing.T) {
	m := chanqjobs.NewMux()
	chanqjobs.HandleTo(m, charge, func(context.Context, *chanq.Lease[int]) ([]chanq.Message[chanqjobs.Job], error) {
		return []chanq.Message[chanqjobs.Job]{note.New("paid")}, nil
	}, chanqjobs.Options{})
	chanqjobs.Chan(m, note)
	ctx := t.Context()
	require.ErrorContains(t, m.Handle(ctx, received(t, "charge", "1")), `the kind "charge" has outputs (HandleTo): use Mux.Step`)
	out, err := m.Step(ctx, received(t, "charge", "1"))
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.ErrorContains(t, m.Handle(ctx, received(t, "note", "x")), `the kind "note" has a channel (Chan): run Mux.Split`)
	_, err = m.Step(ctx, received(t, "note", "x"))
	require.ErrorContains(t, err, "run Mux.Split")
}
