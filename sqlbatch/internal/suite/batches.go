package suite

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
)

// RunsBatches requires that the roles of a producer of the queue orders and of an operator can do all that they need
// with batches of jobs.
func RunsBatches(t *testing.T, ctx context.Context, producer, operator *sql.DB) {
	t.Helper()
	orders, err := chanqjobs.Open(ctx, producer, "orders", chanq.Config{History: chanq.HistoryOff})
	require.NoError(t, err)
	batches := chanqjobs.NewBatches(orders)
	batches.Failed = func(err error) { t.Errorf("failed: %v", err) }
	piece, report := chanqjobs.Define[int]("piece"), chanqjobs.Define[string]("report")
	batch := chanqjobs.NewBatch()
	require.NoError(t, chanq.InTx(ctx, producer, func(ctx context.Context, tx *sql.Tx) error {
		if err := batches.SendTx(ctx, tx, batch, report.New("all"), piece.New(1)); err != nil {
			return err
		}
		return batches.AddTx(ctx, tx, batch, piece.New(2))
	}))
	for _, period := range []time.Duration{time.Millisecond, time.Hour} { // also of a row that is there
		var first bool
		require.Eventually(t, func() bool {
			require.NoError(t, chanq.InTx(ctx, producer, func(ctx context.Context, tx *sql.Tx) error {
				first, err = chanqjobs.Once(ctx, tx, orders, "report", "all", period)
				return err
			}))
			return first
		}, time.Minute, 10*time.Millisecond)
	}

	operated, err := chanqjobs.OpenBatchTable(ctx, operator, chanq.Config{})
	require.NoError(t, err)
	list, err := operated.List(ctx, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	status, err := operated.Status(ctx, batch)
	require.NoError(t, err)
	require.Equal(t, 2, status.Left)

	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- batches.Run(running) }()
	_, err = operator.ExecContext(ctx, orders.Names().SQL("DELETE FROM {live}"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		status, err := operated.Status(ctx, batch)
		return err == nil && !status.Ended.IsZero()
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}
