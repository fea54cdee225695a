package mssqltest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/mssqltest"
	"github.com/chanq/chanq/internal/testdb/mssqltest/engine"
)

func TestTheLibraryRunsOnTheStandIn(t *testing.T) {
	t.Parallel()
	for _, o := range []mssqltest.Options{
		{Clock: engine.RealClock{}},
		{Clock: engine.RealClock{}, ReadCommittedSnapshot: true, AllowSnapshotIsolation: true},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		srv := newQueue(t, o).Server
		q, err := chanq.Open[string](ctx, srv.DB(), "orders", chanq.Config{})
		require.NoError(t, err)
		p, err := q.Producer(chanq.ProducerConfig{})
		require.NoError(t, err)
		const n = 500
		for range n {
			p.C() <- chanq.Message[string]{Body: "hello"}
		}
		require.NoError(t, p.Close(ctx))
		c, err := q.Consume(ctx, chanq.ConsumerConfig{})
		require.NoError(t, err)
		seen := map[chanq.ID]bool{}
		for l := range c.C() {
			require.Equal(t, "hello", l.Body)
			require.False(t, seen[l.ID])
			seen[l.ID] = true
			require.NoError(t, l.Ack())
			if len(seen) == n {
				c.Stop()
			}
		}
		require.NoError(t, c.Shutdown(ctx))
		stats, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Zero(t, stats.Ready+stats.Leased)
		for _, plan := range srv.Engine().Plans() {
			require.LessOrEqual(t, plan.KeysRead, int64(20*n), plan.Text)
		}
		require.Empty(t, srv.Engine().Locks())
	}
}
