package sqlserver_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// poolWith returns a connection pool with an option set.
func poolWith(t *testing.T, s *mssqltest.Server, option string) *sql.DB {
	t.Helper()
	connector, err := mssql.NewConnector(s.DSN())
	require.NoError(t, err)
	connector.SessionInitSQL = option
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// An option that a connector sets must not falsify what chanq reports. Messages pass through all states over such
// connections, closed one after the other, and all changes are in the database.
func TestReportedMessagesAreCommittedWithAnyConnectorSettings(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"SET IMPLICIT_TRANSACTIONS ON", "SET ANSI_DEFAULTS ON", "SET ROWCOUNT 1", "SET LOCK_TIMEOUT 1", "SET XACT_ABORT OFF"} {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			testdb.Emulator.Require(t)
			ctx, cfg := testdb.Soon(t), chanq.Config{Spec: chanq.Spec{Retain: time.Hour}}
			s := mssqltest.Start(t, mssqltest.Options{})
			on := func(use func(q *chanq.Queue[int], db *sql.DB)) {
				t.Helper()
				db := poolWith(t, s, option)
				q, err := chanq.Open[int](ctx, db, "orders", cfg)
				require.NoError(t, err)
				use(q, db)
				require.NoError(t, db.Close())
			}
			migrated := poolWith(t, s, option)
			require.NoError(t, chanq.Migrate(ctx, migrated, "orders", cfg))
			require.NoError(t, migrated.Close())
			plain, err := chanq.Open[int](ctx, s.DB(), "orders", cfg)
			require.NoError(t, err)
			require.Equal(t, [5]int{}, counts(t, ctx, plain))

			on(func(q *chanq.Queue[int], _ *sql.DB) {
				send(t, ctx, q, 1, 7)
				sendOne(t, ctx, q, chanq.Message[int]{DedupKey: "k", Body: 8})
			})
			require.Equal(t, [5]int{8}, counts(t, ctx, plain), "sent")
			on(func(q *chanq.Queue[int], _ *sql.DB) {
				leases := testdb.Leases(testdb.Lease(t, q, 8, time.Minute))
				require.NoError(t, leases[0].Extend(ctx, time.Hour))
				for i, settle := range []func(*chanq.Lease[int]) error{
					(*chanq.Lease[int]).Ack,
					func(l *chanq.Lease[int]) error { return l.Nack(chanq.RetryAfter(0, nil)) },
					(*chanq.Lease[int]).Release,
					func(l *chanq.Lease[int]) error { return l.Nack(chanq.DeadLetter(nil)) },
					func(l *chanq.Lease[int]) error { return l.Nack(chanq.RetryAfter(time.Hour, nil)) },
				} {
					require.NoError(t, settle(leases[i]))
					require.NoError(t, leases[i].Wait(ctx))
				}
			})
			require.Equal(t, [5]int{2, 1, 3, 1, 1}, counts(t, ctx, plain), "settled")
			on(func(q *chanq.Queue[int], db *sql.DB) {
				_, err := testdb.Redrive(ctx, q, 0)
				require.NoError(t, err)
				require.NoError(t, testdb.Pause(ctx, q))
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = q.SendTx(ctx, tx, chanq.Message[int]{}, chanq.Message[int]{}, chanq.Message[int]{})
				require.NoError(t, err)
				require.NoError(t, tx.Commit())
			})
			stats, err := testdb.Admin(plain).Stats(ctx)
			require.NoError(t, err)
			require.True(t, stats.Paused)
			require.Equal(t, [5]int{6, 1, 3, 0, 1}, counts(t, ctx, plain), "redriven, and sent in a transaction")
		})
	}
}

// A limit of a connector would silently cut the result of a statement.
func TestATextSizeOfAConnectorCutsNothing(t *testing.T) {
	t.Parallel()
	testdb.Emulator.Require(t)
	ctx := testdb.Soon(t)
	s := mssqltest.Start(t, mssqltest.Options{})
	db := poolWith(t, s, "SET TEXTSIZE 64")
	long := strings.Repeat("long", 1000)
	for name, kind := range map[string]chanq.Kind{"plain": chanq.KindPlain, "ordered": chanq.KindOrdered} {
		cfg := chanq.Config{Spec: chanq.Spec{Kind: kind}}
		require.NoError(t, chanq.Migrate(ctx, db, name, cfg))
		q, err := chanq.Open[string](ctx, db, name, cfg)
		require.NoError(t, err)
		body := strings.Repeat("body", 1<<15) // a claim leaves out the next one, which is larger
		receipts, err := q.Send(ctx, chanq.Message[string]{Body: long, Headers: map[string]string{"h": long}}, chanq.Message[string]{Body: strings.Repeat(body, 4)})
		require.NoError(t, err)
		entry, err := testdb.Admin(q).Get(ctx, receipts[0].ID)
		require.NoError(t, err)
		require.Len(t, entry.Body, len(long), name)
		got := testdb.Leases(testdb.Lease(t, q, 2, time.Minute))
		require.Equal(t, long, got[0].Body, name)
		require.Equal(t, long, got[0].Headers["h"], name)
		require.Len(t, got[1].Body, 4*len(body), name)
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		rows, err := suite.Rows(ctx, tx, sqlserver.Dialect.Queue(sqlbatch.Names{Queue: name, Slots: q.Spec().Slots}).InTx().Get(receipts[0].ID))
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Contains(t, rows[0], long, name)
		require.NoError(t, tx.Rollback())
	}
}

func counts(t *testing.T, ctx context.Context, q *chanq.Queue[int]) [5]int {
	t.Helper()
	s, err := testdb.Admin(q).Stats(ctx)
	require.NoError(t, err)
	return [5]int{s.Ready, s.Scheduled, s.Leased, s.Dead, s.Done}
}
