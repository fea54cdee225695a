package chanq

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
)

// BenchmarkHistory measures a program's cost of the history: one add in ten seconds, and in one of
// all programs also a count. add is the statement that adds the program's counts to the samples.
// count is Stats, of a queue of 20,000 messages, and its sample. docs/operations.md has the
// figures.
func BenchmarkHistory(b *testing.B) {
	for engine, open := range map[string]func() *sql.DB{
		"sqlite":   func() *sql.DB { return openSQLite(b) },
		"postgres": func() *sql.DB { return pgtest.Open(b) },
	} {
		b.Run("engine="+engine, func(b *testing.B) {
			ctx, db := context.Background(), open()
			cfg := Config{History: HistoryOff, Durability: DurabilityAsIs}
			require.NoError(b, Migrate(ctx, db, "orders", cfg))
			q, err := Open[string](ctx, db, "orders", cfg)
			require.NoError(b, err)
			p, err := q.Producer(ctx, ProducerConfig{})
			require.NoError(b, err)
			for range 40 {
				batch := make([]Message[string], 500)
				_, err = p.SendBatch(ctx, batch...)
				require.NoError(b, err)
			}
			require.NoError(b, p.Close(ctx))
			b.Run("do=add", func(b *testing.B) {
				for b.Loop() {
					_, err := q.core.recorder.Store(ctx, sqlbatch.Sample{Sent: 500, Acked: 500, Delivered: 500})
					require.NoError(b, err)
				}
			})
			b.Run("do=count", func(b *testing.B) {
				for b.Loop() {
					c := counts(b, q)
					_, err := q.core.recorder.Store(ctx, sqlbatch.Sample{Depth: &sqlbatch.Depth{Ready: c.Ready, Oldest: c.OldestReady}})
					require.NoError(b, err)
				}
			})
		})
	}
}
