package batch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

func TestPausesDoubleAndArePartlyLeftToChance(t *testing.T) {
	b := batch.Backoff{Low: 10, High: 40}
	within := func(d time.Duration, low, high time.Duration) {
		t.Helper()
		require.GreaterOrEqual(t, d, low)
		require.LessOrEqual(t, d, high)
	}
	for range 100 {
		within(b.Pause(), 5, 10)
		within(b.Poll(), 10, 20)
		require.EqualValues(t, 40, b.Poll(), "each poll has a cost, and nothing is urgent")
		within(b.Pause(), 20, 40)
		b.Reset()
	}
}

// reports is a Health that records its calls.
type reports []string

func (r *reports) Worked(time.Time)        { *r = append(*r, "up") }
func (r *reports) Failed(time.Time, error) { *r = append(*r, "down") }

func failure(c sqlbatch.Class) *batch.Failure { return &batch.Failure{Class: c, Began: time.Now()} }

func TestWhatIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []sqlbatch.Class{sqlbatch.Refused, sqlbatch.Unknown, sqlbatch.Permanent} {
			var health reports
			loop := batch.Loop{Health: &health}
			require.GreaterOrEqual(t, loop.Failed(t.Context(), failure(c)), 50*time.Millisecond,
				"it is not retried in a tight loop")
			require.Equal(t, reports{"down"}, health)
		}
		for _, c := range []sqlbatch.Class{sqlbatch.RolledBack, sqlbatch.Duplicate} {
			var health reports
			loop := batch.Loop{Health: &health}
			loop.Failed(t.Context(), failure(c))
			require.Empty(t, health, "a temporary lock")
			time.Sleep(5*time.Second - 1)
			loop.Failed(t.Context(), failure(c))
			require.Empty(t, health)
			time.Sleep(1 * time.Nanosecond)
			loop.Failed(t.Context(), failure(c))
			require.Equal(t, reports{"down"}, health, "a lock that is never released")
			require.Nil(t, loop.Try(t.Context(), func(context.Context) error { return nil }))
			require.LessOrEqual(t, loop.Failed(t.Context(), failure(sqlbatch.RolledBack)), 5*time.Millisecond)
			require.Equal(t, reports{"down", "up"}, health, "a success ends the failures in a row")
		}
		var health reports
		loop := batch.Loop{Health: &health}
		for range 10 {
			loop.Failed(t.Context(), failure(sqlbatch.BadRow))
			time.Sleep(time.Second)
		}
		require.Empty(t, health, "a bad row does not show that the database is down")
	})
}

func TestATryHasItsOwnTimeAndItsEndProvesNothingAboutTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var health reports
		loop := batch.Loop{Health: &health, Classify: classify, Timeout: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		for _, want := range []time.Duration{time.Minute, 30 * time.Second} {
			began := time.Now()
			f := loop.Try(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			require.Equal(t, want, time.Since(began))
			require.ErrorIs(t, f.Err, context.DeadlineExceeded)
			require.Equal(t, sqlbatch.Unknown, f.Class)
			loop.Failed(ctx, f)
		}
		require.Equal(t, reports{"down"}, health, "the second one was given up")
		began := time.Now()
		batch.Sleep(ctx, time.Hour)
		require.Zero(t, time.Since(began))
	})
}
