package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/sqlbatch"
)

func TestPausesDoubleAndArePartlyLeftToChance(t *testing.T) {
	b := retry.Backoff{Low: 10, High: 40}
	within := func(d time.Duration, low, high time.Duration) {
		t.Helper()
		require.GreaterOrEqual(t, d, low)
		require.LessOrEqual(t, d, high)
	}
	for range 100 {
		within(b.Pause(), 5, 10)
		within(b.Poll(), 10, 20)
		require.EqualValues(t, 40, b.Poll(), "each look costs something, and there is no hurry")
		within(b.Pause(), 20, 40)
		b.Reset()
	}
}

func failure(c sqlbatch.Class) retry.Failure { return retry.Failure{Class: c, Began: time.Now()} }

func TestWhatIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []sqlbatch.Class{sqlbatch.Refused, sqlbatch.Unknown, sqlbatch.Permanent} {
			var tries retry.Tries
			pause, outage := tries.Failed(failure(c))
			require.True(t, outage)
			require.GreaterOrEqual(t, pause, 50*time.Millisecond, "it is not asked again and again")
		}
		for _, c := range []sqlbatch.Class{sqlbatch.RolledBack, sqlbatch.Duplicate} {
			var tries retry.Tries
			_, outage := tries.Failed(failure(c))
			require.False(t, outage, "a lock that passes")
			time.Sleep(5*time.Second - 1)
			_, outage = tries.Failed(failure(c))
			require.False(t, outage)
			time.Sleep(1 * time.Nanosecond)
			_, outage = tries.Failed(failure(c))
			require.True(t, outage, "looks like one that nobody gives up")
			tries.Reset()
			pause, outage := tries.Failed(failure(sqlbatch.RolledBack))
			require.False(t, outage, "after a success")
			require.LessOrEqual(t, pause, 5*time.Millisecond)
		}
		var tries retry.Tries
		for range 10 {
			_, outage := tries.Failed(failure(sqlbatch.BadRow))
			require.False(t, outage, "a row says nothing of the database")
			time.Sleep(time.Second)
		}
	})
}

// classed is an error of a class.
type classed sqlbatch.Class

func (classed) Error() string { return "failed" }

// history is a Health that remembers.
type history []string

func (h *history) Worked(time.Time)        { *h = append(*h, "up") }
func (h *history) Failed(time.Time, error) { *h = append(*h, "down") }

func classify(err error) sqlbatch.Class {
	var c classed
	if errors.As(err, &c) {
		return sqlbatch.Class(c)
	}
	return sqlbatch.Unknown
}

func again(*retry.Failure) retry.Next { return retry.Again }

func TestALoopEndsWhenItsStatementSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard history
		loop := retry.Loop{Health: &heard, Classify: classify, Timeout: time.Second}
		outcomes := []error{classed(sqlbatch.RolledBack), classed(sqlbatch.Refused), nil}
		began := time.Now()
		var took []time.Duration
		require.Nil(t, loop.UntilKnown(t.Context(), func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			require.Equal(t, time.Second, time.Until(deadline), "each try has its own time")
			took = append(took, time.Since(began))
			began = time.Now()
			err := outcomes[0]
			outcomes = outcomes[1:]
			return err
		}, again))
		require.Equal(t, history{"down", "up"}, heard)
		require.LessOrEqual(t, took[1], 5*time.Millisecond)
		require.GreaterOrEqual(t, took[2], 50*time.Millisecond)

		outcomes = []error{classed(sqlbatch.RolledBack), nil}
		took, began = nil, time.Now()
		require.Nil(t, loop.UntilKnown(t.Context(), func(context.Context) error {
			took = append(took, time.Since(began))
			err := outcomes[len(took)-1]
			return err
		}, again))
		require.LessOrEqual(t, took[1], 5*time.Millisecond, "a success ends the failures in a row")
	})
}

func TestALoopLeavesToItsCallerWhatNoRepetitionMends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard history
		loop := retry.Loop{Health: &heard, Classify: classify}
		began, tries := time.Now(), 0
		f := loop.UntilKnown(t.Context(), func(context.Context) error {
			tries++
			return classed(sqlbatch.BadRow)
		}, func(f *retry.Failure) retry.Next {
			require.Equal(t, sqlbatch.BadRow, f.Class)
			if tries == 1 {
				return retry.AtOnce
			}
			return retry.Stop
		})
		require.NotNil(t, f)
		require.Equal(t, 2, tries)
		require.Zero(t, time.Since(began), "no pause")
		require.Empty(t, heard)
	})
}

func TestALoopEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard history
		loop := retry.Loop{Health: &heard, Classify: classify, Timeout: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		noted := 0
		f := loop.UntilKnown(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, func(*retry.Failure) retry.Next {
			noted++
			return retry.Again
		})
		require.ErrorIs(t, f.Err, context.DeadlineExceeded)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, 1, noted, "what the last failure says counts, too")
		require.Empty(t, heard, "it was given up: that says nothing of the database")

		ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began = time.Now()
		loop.UntilKnown(ctx, func(context.Context) error { return classed(sqlbatch.Refused) }, again)
		require.Equal(t, 30*time.Second, time.Since(began), "in the middle of a pause, if need be")
		heard = nil
		loop.Failed(ctx, &retry.Failure{Class: sqlbatch.Refused, Began: time.Now()})
		require.Empty(t, heard)
	})
}
