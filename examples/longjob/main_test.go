package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAJobGoesOnWhereTheSignalEndedIt(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	var pages []int
	for process, last := range []int{3, 7, 9} { // after which the signal comes
		ctx, signal := context.WithTimeout(t.Context(), time.Minute)
		require.NoError(t, run(ctx, db, max(0, 10-10*process), func(ctx context.Context, page int) error {
			if pages = append(pages, page); page == last {
				signal()
				time.Sleep(50 * time.Millisecond) // until the consumer has stopped
			}
			return ctx.Err() // the time to drain is not over
		}))
		signal()
		var attempts int
		require.NoError(t, db.QueryRow("SELECT COALESCE(SUM(attempts), 0) FROM chanq_jobs").Scan(&attempts))
		require.Zero(t, attempts, "the job was released uncounted, or is acked")
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, pages)
}
