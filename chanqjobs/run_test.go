package chanqjobs_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
)

func TestAPartThatFailsEndsAllParts(t *testing.T) {
	errOther := errors.New("cannot close")
	for want, fails := range map[string]chanqjobs.Part{
		"no":           func(context.Context) error { return errBad },
		"panic: aargh": func(context.Context) error { panic("aargh") },
		"Goexit": func(context.Context) error {
			runtime.Goexit()
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ended := false
			err := chanqjobs.Run(t.Context(),
				func(ctx context.Context) error { // it returns later than the one that fails
					<-ctx.Done()
					require.ErrorContains(t, context.Cause(ctx), want)
					time.Sleep(time.Second)
					ended = true
					return errOther
				},
				func(ctx context.Context) error {
					time.Sleep(time.Second)
					return fails(ctx)
				},
				func(ctx context.Context) error {
					<-ctx.Done()
					return context.Cause(ctx)
				},
				func(context.Context) error { return nil },
			)
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, err, errOther, "all errors are returned")
			require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 2)
			require.True(t, ended)
			if want == "panic: aargh" {
				require.ErrorContains(t, err, "run_test.go", "with its stack")
			}
		})
	}
}

func TestPartsEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		require.NoError(t, chanqjobs.Run(ctx,
			func(context.Context) error { return nil }, // it ends no other
			func(ctx context.Context) error { <-ctx.Done(); return nil },
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		))
		require.Equal(t, time.Hour, time.Since(began))
		require.NoError(t, chanqjobs.Run(ctx))
		require.ErrorIs(t, chanqjobs.Run(ctx, func(context.Context) error { return errBad }), errBad)
	})
}

func TestWorkHandlesAQueueUntilItsContextEnds(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		jobs, plain := jobsOf(w, "jobs", chanq.Config{}), w.Queue("plain", chanq.Config{})
		testdb.Send(w, jobs, charge.New(1), note.New("a"))
		testdb.Send(w, plain, testdb.Texts("x")...)
		var got tally
		ctx, cancel := context.WithCancel(w.Soon())
		ended := make(chan error, 1)
		go func() {
			ended <- chanqjobs.Run(ctx,
				chanqjobs.Work(jobs, 2, counting(&got).Handle, chanq.ConsumerConfig{}),
				chanqjobs.Work(plain, 1, count[string](&got), chanq.ConsumerConfig{}))
		}()
		w.Eventually("all are handled", func() bool { return testdb.Empty(w, jobs) && testdb.Empty(w, plain) })
		cancel()
		require.NoError(w, testdb.Receive(w, ended, "Run returns"))
		require.Equal(w, map[string]int{"charge 1": 1, "note a": 1, " x": 1}, got.counts())

		err := chanqjobs.Run(w.Soon(), chanqjobs.Work(plain, 1, count[string](&got), chanq.ConsumerConfig{Prefetch: -1}))
		require.ErrorContains(w, err, "ConsumerConfig.Prefetch")
	})
}
