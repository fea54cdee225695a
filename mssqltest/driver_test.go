package mssqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
)

func number(err error) int32 {
	if e, ok := err.(mssql.Error); ok {
		return e.Number
	}
	return 0
}

func start(t *testing.T, setup string) *mssqltest.Server {
	srv := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	_, err := srv.DB().Exec(setup)
	require.NoError(t, err)
	return srv
}

func TestValuesOfEveryTypeGoInAndOut(t *testing.T) {
	t.Parallel()
	srv := start(t, `CREATE TABLE dbo.v (i int, b bigint, f float, d decimal(10,2), s nvarchar(50), bin varbinary(max), t datetime2(3), u uniqueidentifier, x bit)`)
	at := time.Date(2026, 5, 6, 7, 8, 9, 123e6, time.UTC)
	var id mssql.UniqueIdentifier
	require.NoError(t, id.Scan("6F9619FF-8B86-D011-B42D-00C04FC964FF"))
	_, err := srv.DB().Exec("INSERT dbo.v VALUES (@p1, @p2, @p3, @p4, @p5, @p6, @p7, @p8, @p9)", int32(1), int64(2), 2.5, "3.25", "it's 😀", []byte{0, 1}, at, id, true)
	require.NoError(t, err)
	var (
		i, b int64
		f    float64
		d, s string
		bin  []byte
		when time.Time
		u    mssql.UniqueIdentifier
		x    bool
	)
	require.NoError(t, srv.DB().QueryRow("SELECT * FROM dbo.v WHERE s = N'IT''S 😀' AND i = @p1", 1).Scan(&i, &b, &f, &d, &s, &bin, &when, &u, &x))
	require.Equal(t, []any{int64(1), int64(2), 2.5, "3.25", "it's 😀", []byte{0, 1}, at, id, true}, []any{i, b, f, d, s, bin, when.UTC(), u, x})
}

func TestProceduresHaveOutputsAndAReturnStatus(t *testing.T) {
	t.Parallel()
	srv := start(t, "CREATE PROCEDURE dbo.twice @n int, @out bigint OUTPUT AS BEGIN SET @out = @n * 2; END")
	var out int64
	status := mssql.ReturnStatus(9)
	_, err := srv.DB().Exec("dbo.twice", sql.Named("n", 21), sql.Named("out", sql.Out{Dest: &out}), &status)
	require.NoError(t, err)
	require.Equal(t, int64(42), out)
	require.Zero(t, status)
}

func TestTransactionsOfTheDriver(t *testing.T) {
	t.Parallel()
	srv := start(t, "CREATE TABLE dbo.t (id int PRIMARY KEY)")
	ctx := t.Context()
	tx, err := srv.DB().BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	_, err = tx.Exec("INSERT dbo.t VALUES (1)")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	tx, err = srv.DB().BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.Exec("INSERT dbo.t VALUES (@p1)", 2)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	var n int
	require.NoError(t, srv.DB().QueryRow("SELECT id FROM dbo.t").Scan(&n))
	require.Equal(t, 2, n)
}

func TestAConnectionReleasedInATransactionIsRolledBack(t *testing.T) {
	t.Parallel()
	srv := start(t, "CREATE TABLE dbo.t (id int PRIMARY KEY)")
	srv.DB().SetMaxOpenConns(1)
	_, err := srv.DB().Exec("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN TRAN; INSERT dbo.t VALUES (1)")
	require.NoError(t, err)
	_, err = srv.DB().Exec("SELECT id FROM dbo.t WITH (READPAST)")
	require.Equal(t, int32(650), number(err), "the reset keeps the isolation level: %v", err)
	var n int
	require.NoError(t, srv.DB().QueryRow("SELECT COUNT(*) FROM dbo.t WITH (READCOMMITTED, READPAST)").Scan(&n))
	require.Zero(t, n)
}

func TestTheEndOfAContextEndsAWait(t *testing.T) {
	t.Parallel()
	srv := start(t, "CREATE TABLE dbo.t (id int PRIMARY KEY); INSERT dbo.t VALUES (1)")
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := srv.DB().Conn(t.Context())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(ctx, "SET XACT_ABORT ON; BEGIN TRAN; DELETE dbo.t; WAITFOR DELAY '01:00:00'; COMMIT")
		done <- err
	}()
	for {
		changed := srv.Clock().Changed()
		if srv.Clock().Waiting() == 1 {
			break
		}
		<-changed
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	var n int
	require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dbo.t").Scan(&n), "the connection is still usable")
	require.Equal(t, 1, n)
	require.NoError(t, conn.Close())
}

func TestLimitsOfARequest(t *testing.T) {
	t.Parallel()
	srv := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	ask := func(n int) error {
		names, args := make([]string, n), make([]any, n)
		for i := range args {
			names[i], args[i] = fmt.Sprintf("@p%d", i+1), i
		}
		_, err := srv.DB().Exec("SELECT v.x FROM (VALUES ("+strings.Join(names, "),(")+")) AS v (x)", args...)
		return err
	}
	require.NoError(t, ask(2098))
	require.Equal(t, int32(8003), number(ask(2099)))
}

func TestWrongLoginsAreRefused(t *testing.T) {
	t.Parallel()
	srv := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped(), User: "sa", Password: "right"})
	for dsn, want := range map[string][]int32{
		strings.Replace(srv.DSN(), "right", "wrong", 1):                  {18456},
		strings.Replace(srv.DSN(), "database=test", "database=other", 1): {4060, 18456},
	} {
		db, err := sql.Open("sqlserver", dsn)
		require.NoError(t, err)
		var e mssql.Error
		require.ErrorAs(t, db.Ping(), &e)
		var reported []int32
		for _, one := range e.All {
			reported = append(reported, one.Number)
		}
		require.Equal(t, want, reported)
		require.NoError(t, db.Close())
	}
}

func TestRowsArriveBeforeTheErrorOfTheirStatement(t *testing.T) {
	t.Parallel()
	srv := start(t, "CREATE TABLE dbo.t (id int PRIMARY KEY, n int NOT NULL); INSERT dbo.t VALUES (1, 1), (2, 0), (3, 5)")
	rows, err := srv.DB().Query("UPDATE dbo.t SET n = 10 / n OUTPUT inserted.id WHERE id < @p1", 9)
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.False(t, rows.Next())
	require.Equal(t, int32(8134), number(rows.Err()))
	require.NoError(t, rows.Close())
	var n int
	require.NoError(t, srv.DB().QueryRow("SELECT COUNT(*) FROM dbo.t WHERE n = 10").Scan(&n))
	require.Zero(t, n)
}

func TestOneTextIsOnePlanWhateverTheLengths(t *testing.T) {
	t.Parallel()
	srv := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	for n := range 5 {
		_, err := srv.DB().Exec("sp_executesql", "SELECT DATALENGTH(@a)", "@a varbinary(max)", sql.Named("a", make([]byte, n)))
		require.NoError(t, err)
		_, err = srv.DB().Exec("SELECT DATALENGTH(@p1)", strings.Repeat("x", n+1))
		require.NoError(t, err)
	}
	count := map[string]int{}
	for _, p := range srv.QueryStats() {
		count[p.Text]++
	}
	require.Equal(t, map[string]int{"SELECT DATALENGTH(@a)": 1, "SELECT DATALENGTH(@p1)": 5}, count)
}

func TestHooksSeeAStatementBeforeAndAfter(t *testing.T) {
	t.Parallel()
	srv := start(t, "CREATE TABLE dbo.t (id int PRIMARY KEY)")
	var seen []string
	note := func(when string) func(context.Context, mssqltest.Statement) error {
		return func(_ context.Context, st mssqltest.Statement) error {
			seen = append(seen, when+" "+st.Kind)
			return nil
		}
	}
	srv.SetHooks(mssqltest.Hooks{Before: note("before"), Applied: note("applied")})
	_, err := srv.DB().Exec("INSERT dbo.t VALUES (1)")
	require.NoError(t, err)
	srv.SetHooks(mssqltest.Hooks{})
	require.Equal(t, []string{"before InsertStatement", "applied InsertStatement"}, seen)
}
