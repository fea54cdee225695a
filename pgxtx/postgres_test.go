package pgxtx_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/pgxtx"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// newShop returns a shop on a new database of PostgreSQL, and the *sql.DB of its queue.
func newShop(t *testing.T, spec chanq.Spec, mode pgx.QueryExecMode) (*shop, *sql.DB) {
	testdb.Long(t)
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = pool.Exec(t.Context(), "CREATE TABLE customers (name VARCHAR(20) PRIMARY KEY)")
	require.NoError(t, err)
	require.NoError(t, chanq.Migrate(t.Context(), db, "mails", chanq.Config{Spec: spec}))
	mails, err := chanq.Open[string](t.Context(), db, "mails", chanq.Config{})
	require.NoError(t, err)
	return &shop{pool, New(pool), mails}, db
}

func (s *shop) customers(t *testing.T) (n int) {
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT COUNT(*) FROM customers").Scan(&n))
	return n
}

func TestACommitStoresBothAndARollbackNeither(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			s, _ := newShop(t, chanq.Spec{}, mode)
			for i, register := range []func(string) error{
				func(name string) error { return s.register(t.Context(), name) },
				func(name string) error {
					return s.registerIn(t.Context(), name, pgx.TxOptions{IsoLevel: pgx.Serializable})
				},
			} {
				name := fmt.Sprint("customer ", i)
				require.NoError(t, register(name))
				var failed *pgconn.PgError
				require.ErrorAs(t, register(name), &failed)
				require.Equal(t, "23505", failed.Code)
				require.Equal(t, i+1, s.customers(t))
				require.Equal(t, chanqadmin.Stats{Ready: i + 1}, testdb.Counted(t, s.mails))
			}

			// A savepoint is rolled back, with what was sent and cancelled in it. A DedupKey is looked for.
			ids := testdb.Send(t, s.mails, chanq.Message[string]{Body: "later", Delay: time.Hour, DedupKey: "later"})
			tx, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			inner, err := tx.Begin(t.Context())
			require.NoError(t, err)
			_, err = s.mails.SendTx(t.Context(), pgxtx.Wrap(inner), testdb.Texts("a", "b")...)
			require.NoError(t, err)
			found, err := s.mails.CancelTx(t.Context(), pgxtx.Wrap(inner), ids...)
			require.NoError(t, err)
			require.Equal(t, ids, found)
			require.NoError(t, inner.Rollback(t.Context()))
			_, err = s.mails.SendTx(t.Context(), pgxtx.Wrap(inner), testdb.Texts("a")...)
			require.ErrorIs(t, err, pgx.ErrTxClosed)
			receipts, err := s.mails.SendTx(t.Context(), pgxtx.Wrap(tx), chanq.Message[string]{Body: "again", DedupKey: "later"}, chanq.Msg("c"))
			require.NoError(t, err)
			require.True(t, receipts[0].Duplicate)
			require.False(t, receipts[1].Duplicate)
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, chanqadmin.Stats{Ready: 3, Scheduled: 1}, testdb.Counted(t, s.mails))
		})
	}
}

// An ack in a transaction of pgx has the outcomes of one in a *sql.Tx.
func TestAnAckBelongsToTheTransaction(t *testing.T) {
	s, _ := newShop(t, chanq.Spec{Kind: chanq.KindOrdered}, pgx.QueryExecModeCacheStatement)
	var ms []chanq.Message[string]
	for i := range 3 {
		ms = append(ms, chanq.Message[string]{Key: "k", Body: fmt.Sprint(i)})
	}
	testdb.Send(t, s.mails, ms...)
	consumer, err := s.mails.Consume(t.Context(), chanq.ConsumerConfig{})
	require.NoError(t, err)

	first := <-consumer.C()
	failed := fmt.Errorf("failed")
	ack := func(l *chanq.Lease[string], end error) error {
		return pgxtx.InTx(t.Context(), s.pool, func(ctx context.Context, tx *pgxtx.Tx) error {
			if err := s.queries.WithTx(tx).CreateCustomer(ctx, l.Body); err != nil {
				return err
			}
			if err := l.AckTx(ctx, tx); err != nil {
				return err
			}
			return end
		})
	}
	require.Equal(t, failed, ack(first, failed))
	require.Zero(t, s.customers(t))
	require.NoError(t, ack(first, nil))
	require.NoError(t, first.Wait(t.Context()))
	require.EqualValues(t, 1, consumer.Stats().Acked, "InTx has counted it")

	// In a transaction of the caller the consumer finds out that the message is gone, and delivers the next of its key.
	second := <-consumer.C()
	require.Equal(t, "1", second.Body)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, chanq.AckTx(t.Context(), pgxtx.Wrap(tx), second))
	require.NoError(t, tx.Commit(t.Context()))
	third := <-consumer.C()
	require.Equal(t, "2", third.Body)

	// A claim by another consumer has raised the fence.
	_, err = s.pool.Exec(t.Context(), "UPDATE chanq_mails SET fence = fence + 1")
	require.NoError(t, err)
	require.ErrorIs(t, ack(third, nil), chanq.ErrLeaseLost)
	require.Equal(t, 1, s.customers(t))
	require.NoError(t, consumer.Shutdown(t.Context()))
	require.EqualValues(t, 1, consumer.Stats().Acked, "nobody tells chanq of the commit of another transaction")
}

// The commit of InTx wakes an idle consumer, which would otherwise poll after an hour.
func TestTheCommitWakesIdleConsumers(t *testing.T) {
	s, _ := newShop(t, chanq.Spec{}, pgx.QueryExecModeCacheStatement)
	consumer, err := s.mails.Consume(t.Context(), chanq.ConsumerConfig{PollEvery: time.Hour})
	require.NoError(t, err)
	for i, register := range []func(string) error{
		func(name string) error { return s.register(t.Context(), name) },
		func(name string) error { return s.registerIn(t.Context(), name, pgx.TxOptions{}) },
	} {
		require.NoError(t, register(fmt.Sprint("customer ", i)))
		lease := <-consumer.C()
		require.NoError(t, lease.Ack())
		require.NoError(t, lease.Wait(t.Context()))
	}
	require.NoError(t, consumer.Shutdown(t.Context()))
}

// Whatever a query returns, its values are those of package stdlib.
func TestValuesAreThoseOfPackageStdlib(t *testing.T) {
	s, db := newShop(t, chanq.Spec{}, pgx.QueryExecModeCacheStatement)
	const query = `SELECT true, 1::smallint, 2, 3::bigint, 4::oid, 0.1::real, 0.1::float8, 1.50::numeric, 'käse', ''::text, 'a'::name, 'c'::char(3), '\x00ff'::bytea,
''::bytea, '550e8400-e29b-41d4-a716-446655440000'::uuid, '2026-11-23 08:30:00.123456+00'::timestamptz, '2026-11-23'::date, '2026-11-23'::timestamp,
'infinity'::timestamptz, '{"a":1}'::jsonb, '[1]'::json, 'null'::jsonb, '<a/>'::xml, ARRAY['a','b c'], ARRAY[1,2]::bigint[], '1 day'::interval, '10.0.0.1'::inet, xmin,
NULL, NULL::bigint, NULL::bytea, NULL::uuid, NULL::jsonb, NULL::timestamptz, (1, 'a') FROM pg_class LIMIT 2`
	read := func(tx chanq.Tx) (all [][]any) {
		rows, err := tx.QueryContext(t.Context(), query)
		require.NoError(t, err)
		defer rows.Close()
		columns, err := rows.Columns()
		require.NoError(t, err)
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			require.NoError(t, rows.Scan(into...))
			all = append(all, values)
		}
		require.NoError(t, rows.Err())
		return all
	}
	want, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer want.Rollback()
	got, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer got.Rollback(t.Context())
	expected := read(want)
	require.Len(t, expected, 2)
	require.Equal(t, expected, read(pgxtx.Wrap(got)))
}

// The end of the context breaks a statement that waits for a lock. The pool gets no connection back that is in a transaction.
func TestTheEndOfTheContextRollsBack(t *testing.T) {
	s, _ := newShop(t, chanq.Spec{}, pgx.QueryExecModeCacheStatement)
	blocker, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer blocker.Rollback(t.Context())
	require.NoError(t, s.queries.WithTx(blocker).CreateCustomer(t.Context(), "Ada"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = pgxtx.InTx(ctx, s.pool, func(ctx context.Context, tx *pgxtx.Tx) error {
		if _, err := s.mails.SendTx(ctx, tx, chanq.Msg("Welcome, Ada")); err != nil {
			return err
		}
		return s.queries.WithTx(tx).CreateCustomer(ctx, "Ada")
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, blocker.Rollback(t.Context()))
	require.Eventually(t, func() bool { return s.pool.Stat().AcquiredConns() == 0 }, testdb.Patience, time.Millisecond) // pgx closes it in a goroutine
	require.NoError(t, s.register(t.Context(), "Ada"))
	require.Equal(t, chanqadmin.Stats{Ready: 1}, testdb.Counted(t, s.mails))
}
