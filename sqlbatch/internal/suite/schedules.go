package suite

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqcron"
)

// RunsSchedules requires that the roles of a producer of the queue orders and of an operator can do all that they need
// with schedules.
func RunsSchedules(t *testing.T, ctx context.Context, producer, operator *sql.DB) {
	t.Helper()
	orders, err := chanq.Open[string](ctx, producer, "orders", chanq.Config{History: chanq.HistoryOff})
	require.NoError(t, err)
	cron := chanqcron.New(producer, orders)
	s := chanqcron.Schedule[string]{Name: "often", Line: "every 1s", Message: chanq.Msg("x")}
	for range 2 {
		require.NoError(t, cron.Ensure(ctx, s))
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- cron.Run(running) }()
	require.Eventually(t, func() bool {
		empty, err := orders.Empty(ctx)
		return err == nil && !empty
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)

	operated, err := chanqcron.Open(ctx, operator, chanq.Config{})
	require.NoError(t, err)
	list, err := operated.List(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NotZero(t, list[0].Last)
	require.NoError(t, operated.Pause(ctx, "often", "me", "a test"))
	_, err = operated.Send(ctx, "often")
	require.NoError(t, err)
	require.NoError(t, operated.Resume(ctx, "often"))
	require.NoError(t, operated.Remove(ctx, "often"))
}
