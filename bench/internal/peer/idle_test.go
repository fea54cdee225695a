package peer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
)

func TestAReceiverIsIdleWhileAnotherProcessPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newChannelQueue()
		q.onSend = func(Message) error { time.Sleep(3 * time.Millisecond); return nil }
		stop, reported := make(chan struct{}), make(chan error, 1)
		var last Progress
		all := measure.Histogram{}
		go func() {
			reported <- asleep(t.Context(), q, stop, func(p Progress) {
				last = p
				all.Merge(p.Ages)
			})
		}()
		o, err := run(t.Context(), q, Job{Phase: Nap, Body: 100, Gap: measure.Warm, For: time.Minute})
		require.NoError(t, err)
		require.InDelta(t, 200, o.Sent, 50)
		require.InDelta(t, 3000, o.P50, 1)
		close(stop)
		require.NoError(t, <-reported)
		require.EqualValues(t, o.Sent, last.Received, "each message, and reported before the end of the nap")
		require.InEpsilon(t, 3000, all.Quantile(0.5), 0.06)
		require.Zero(t, q.open.Load())
		rest, err := run(t.Context(), q, Job{Phase: Nap, For: 10 * time.Second})
		require.NoError(t, err)
		require.Zero(t, rest.Sent)
		require.InDelta(t, 10, rest.Seconds, 0.1)
	})
}

func TestAFailingSenderEndsItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newChannelQueue()
		q.onSend = func(Message) error { return errors.New("refused") }
		_, err := run(t.Context(), q, Job{Phase: Nap, Gap: measure.Cold, For: time.Minute})
		require.ErrorContains(t, err, "refused")
		require.Zero(t, q.open.Load())
	})
}
