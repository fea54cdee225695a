package limits_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// A *sql.DB of stdlib.OpenDBFromPool does not show the limit of its pool.
func TestAPgxpoolOfTwoConnectionsIsEnoughForAConsumerAProducerAndTheApplication(t *testing.T) {
	testdb.Long(t)
	const messages = 20
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	config.MaxConns = 2
	ctx, cancel := context.WithTimeout(t.Context(), testdb.Patience)
	defer cancel()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	require.NoError(t, chanq.Migrate(ctx, db, "work", chanq.Config{}))
	q, err := chanq.Open[int](ctx, db, "work", chanq.Config{})
	require.NoError(t, err)
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	c, err := q.Consume(ctx, chanq.ConsumerConfig{LeaseFor: 30 * time.Second})
	require.NoError(t, err)
	for i := range messages {
		_, err := p.Send(ctx, chanq.Msg(i))
		require.NoError(t, err)
	}
	handled := make(chan error, messages)
	go func() {
		_ = c.Handle(4, func(ctx context.Context, l *chanq.Lease[int]) error {
			_, err := db.ExecContext(ctx, "SELECT 1")
			handled <- err
			return nil
		})
	}()
	for range messages {
		select {
		case err := <-handled:
			require.NoError(t, err)
		case <-ctx.Done():
			require.Fail(t, "not all messages were handled")
		}
	}
	require.NoError(t, p.Close(ctx))
	require.NoError(t, c.Shutdown(ctx))
}
