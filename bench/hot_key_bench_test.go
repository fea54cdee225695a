package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

// BenchmarkBehindAHeldKey measures how long a new consumer of an ordered queue needs until it has delivered one message of each of 2,000
// keys, if many messages of another key, whose first message is being handled, come before them. Each operation is one life of a consumer;
// first/ms is the time until the first of the other keys. With CHANQ_TEST_POSTGRES it also runs on PostgreSQL.
func BenchmarkBehindAHeldKey(b *testing.B) {
	engines := []string{"sqlite"}
	dsn := os.Getenv("CHANQ_TEST_POSTGRES")
	if dsn != "" {
		engines = append(engines, "postgres")
	}
	sizes := []int{1_000, 20_000}
	if b.N > 1 || os.Getenv("CHANQ_TEST") != "" {
		sizes = append(sizes, 200_000)
	}
	for _, engine := range engines {
		for _, behind := range sizes {
			b.Run(fmt.Sprintf("engine=%s/behind=%d", engine, behind), func(b *testing.B) {
				var db *sql.DB
				var err error
				if engine == "sqlite" {
					db, err = embedded.Open(filepath.Join(b.TempDir(), "queue.db"))
				} else {
					db, err = sql.Open("pgx", dsn)
				}
				require.NoError(b, err)
				defer db.Close()
				behindAHeldKey(b, db, behind)
			})
		}
	}
}

func behindAHeldKey(b *testing.B, db *sql.DB, behind int) {
	const others = 2000
	ctx, cfg := b.Context(), chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}}
	require.NoError(b, chanq.Migrate(ctx, db, "behind", cfg))
	defer func() {
		require.NoError(b, chanqadmin.DropWithMessages(context.Background(), db, "behind", chanq.Config{}))
	}()
	q, err := chanq.Open[string](ctx, db, "behind", cfg)
	require.NoError(b, err)
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(b, err)
	for range behind {
		p.C() <- chanq.Message[string]{Key: "hot", Body: "hot"}
	}
	for i := range others {
		p.C() <- chanq.Message[string]{Key: fmt.Sprint("other", i), Body: "other"}
	}
	require.NoError(b, p.Close(ctx))
	first := time.Duration(0)
	b.ResetTimer()
	for range b.N {
		began := time.Now()
		c, err := q.Consume(ctx, chanq.ConsumerConfig{Prefetch: others + 1})
		require.NoError(b, err)
		leases, got := []*chanq.Lease[string]{}, 0
		for l := range c.C() {
			if leases = append(leases, l); l.Body == "hot" {
				continue
			}
			if got++; got == 1 {
				first += time.Since(began)
			}
			if got == others {
				break
			}
		}
		require.Equal(b, others, got, c.Err())
		b.StopTimer()
		for _, l := range leases {
			require.NoError(b, l.Release())
		}
		require.NoError(b, c.Shutdown(ctx))
		b.StartTimer()
	}
	b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "first/ms")
}
