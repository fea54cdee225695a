package sqlserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func TestProblemsAreDistinguished(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	s := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	q := &queue{sqlserver.Dialect.Queue(suite.Orders), s, t}
	problems := func() [][]any {
		rows := q.rows(q.Problems())
		require.Equal(t, sqlbatch.ProblemSets, rows[0][0])
		require.Equal(t, []any{sqlbatch.ProblemSets, ""}, rows[1], "in the second result set")
		return rows[2:]
	}
	require.Empty(t, problems(), "without any table")
	exec := func(text string) {
		_, err := s.DB().ExecContext(ctx, text)
		require.NoError(t, err)
	}
	exec("CREATE TABLE dbo.chanq_orders (id binary(16) NOT NULL, fence bigint NOT NULL)")
	require.Equal(t, [][]any{{sqlbatch.ProblemForm, "[dbo].[chanq_orders] has no column lapses"}, {sqlbatch.ProblemForm, "[dbo].[chanq_orders] has no column type"}}, problems())
	exec("DROP TABLE dbo.chanq_orders")
	exec("CREATE TABLE dbo.chanq_orders (id binary(16) NOT NULL, fence bigint NOT NULL, lapses smallint NOT NULL)")
	require.Equal(t, [][]any{{sqlbatch.ProblemForm, "[dbo].[chanq_orders] has no column type"}}, problems())
	exec("CREATE VIEW dbo.chanq_orders__dead AS SELECT 1 AS id")
	require.Equal(t, []any{sqlbatch.ProblemTable, "[dbo].[chanq_orders__dead] is not a table"}, problems()[1])
	exec("DROP VIEW dbo.chanq_orders__dead")
	exec("DROP TABLE dbo.chanq_orders")
	testdb.MigrateTables(t, sqlserver.Dialect, q.DB(), suite.Orders)
	require.Empty(t, problems())
	exec("ALTER DATABASE CURRENT SET DELAYED_DURABILITY = ALLOWED")
	require.Empty(t, problems(), "the application has chosen it")
	exec("ALTER DATABASE CURRENT SET DELAYED_DURABILITY = FORCED")
	require.Equal(t, [][]any{{sqlbatch.ProblemDurability, "DELAYED_DURABILITY = FORCED"}}, problems())
}

func TestALockedConsumerRowDelaysNoOtherConsumer(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		held := sqlbatch.Consumer{ID: [16]byte{1}, Name: "held", For: time.Minute}
		q.exec(q.Join(held))
		items := q.leased(1)
		_, err := q.DB().ExecContext(ctx, "UPDATE dbo.chanq_orders SET leased_by = @p1", held.ID[:])
		require.NoError(t, err)
		q.Clock().Advance(48 * time.Hour)
		tx := begin(t, ctx, q)
		_, err = tx.ExecContext(ctx, "UPDATE dbo.chanq__consumers SET host = 'x'")
		require.NoError(t, err)
		q.exec(q.Join(sqlbatch.Consumer{ID: [16]byte{2}, Name: "free", For: time.Minute}))
		require.Nil(t, q.rows(q.Browse(sqlbatch.Ready, 1, nil, sqlbatch.Filter{}))[0][11], "the query for its name does not wait")
		outcome := make(chan error, 1)
		go func() {
			_, err := suite.Rows(ctx, q.DB(), q.Join(held))
			outcome <- err
		}()
		require.Eventually(t, func() bool { return q.Clock().Waiting() == 1 }, testdb.Patience, time.Millisecond)
		q.Clock().Advance(sqlbatch.LockWait)
		require.Equal(t, int32(1222), numberOf(<-outcome))
		require.NoError(t, tx.Rollback())
		entry := q.rows(q.Get(items[0].ID))[0]
		require.Equal(t, []any{string(held.ID[:]), "held"}, entry[10:12])
	})
}
