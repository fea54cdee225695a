package tds_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

var deadlock = sqltype.Error{Number: 1205, State: 51, Class: 13, Proc: "dbo.claim", Line: 7,
	Message: "Transaction (Process ID 52) was deadlocked on lock resources with another process and has been chosen as the deadlock victim. Rerun the transaction."}

func TestErrorsCarryTheirNumberStateClassProcedureAndLine(t *testing.T) {
	db := open(t, serve(t, &fakeHandler{run: answer(message(deadlock))}, tds.Options{ServerName: "standin"}))
	for name, call := range map[string]func() error{
		"batch":           func() error { _, err := db.ExecContext(within(t), "update q"); return err },
		"call":            func() error { _, err := db.ExecContext(within(t), "update q set n = @p1", 1); return err },
		"query":           func() error { return queryOne(within(t), db, new(any), "update q") },
		"query by call":   func() error { return queryOne(within(t), db, new(any), "update q set n = @p1", 1) },
		"named by caller": func() error { _, err := db.ExecContext(within(t), "dbo.claim"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			e := mssqlError(t, call())
			require.Equal(t, deadlock.Number, e.Number)
			require.Equal(t, deadlock.State, e.State)
			require.Equal(t, deadlock.Class, e.Class)
			require.Equal(t, deadlock.Proc, e.ProcName)
			require.Equal(t, deadlock.Line, e.LineNo)
			require.Equal(t, deadlock.Message, e.Message)
			require.Equal(t, "standin", e.ServerName)
			require.Len(t, e.All, 1)
		})
	}
}

func TestAnErrorLeavesTheConnectionUsable(t *testing.T) {
	s := serve(t, &fakeHandler{run: answer(message(deadlock))}, tds.Options{})
	db := open(t, s)
	for range 3 {
		_, err := db.ExecContext(within(t), "update q")
		require.Equal(t, int32(1205), mssqlError(t, err).Number)
	}
	require.Len(t, s.Conns(), 1)
}

func TestInformationIsNoError(t *testing.T) {
	info := sqltype.Error{Number: 5701, Class: 10, State: 1, Message: "Changed database context."}
	db := open(t, serve(t, &fakeHandler{run: answer(message(info), counted(3))}, tds.Options{}))
	result, err := db.ExecContext(within(t), "use chanq")
	require.NoError(t, err)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	require.Equal(t, int64(3), n)
}

func TestAnErrorBehindRowsIsSeenAfterTheRows(t *testing.T) {
	for name, end := range map[string][]func(tds.Results) error{
		"before the end of the statement":     {message(deadlock)},
		"with the end of the statement":       {message(deadlock), counted(2)},
		"after the end of the statement":      {counted(2), message(deadlock)},
		"after the end of a call's statement": {func(w tds.Results) error { return w.Done(tds.End{Rows: 2, Counted: true, InProc: true}) }, message(deadlock)},
	} {
		t.Run(name, func(t *testing.T) {
			parts := append([]func(tds.Results) error{columns(intColumn("n")), row(int64(1)), row(int64(2))}, end...)
			db := open(t, serve(t, &fakeHandler{run: answer(parts...)}, tds.Options{}))
			for _, args := range [][]any{nil, {1}} { // a batch and a call
				rows, err := db.QueryContext(within(t), "update q output inserted.n", args...)
				require.NoError(t, err)
				var got []int
				for rows.Next() {
					var n int
					require.NoError(t, rows.Scan(&n))
					got = append(got, n)
				}
				require.Equal(t, []int{1, 2}, got)
				require.Equal(t, int32(1205), mssqlError(t, rows.Err()).Number)
				require.NoError(t, rows.Close())
			}
		})
	}
}

func TestSeveralResultSetsComeInOrder(t *testing.T) {
	text := sqltype.Column{Name: "s", Type: sqltype.Type{Kind: sqltype.NVarChar, Size: 10}}
	h := &fakeHandler{run: answer(
		columns(intColumn("n")), row(int64(1)), row(nil), counted(2),
		counted(5), // an UPDATE between
		columns(text), counted(0),
		columns(text), row("last"), counted(1),
	)}
	db := open(t, serve(t, h, tds.Options{}))
	rows, err := db.QueryContext(within(t), "select n; update q; select s")
	require.NoError(t, err)
	defer rows.Close()
	var n sql.NullInt64
	require.True(t, rows.Next())
	require.NoError(t, rows.Scan(&n))
	require.Equal(t, sql.NullInt64{Int64: 1, Valid: true}, n)
	require.True(t, rows.Next())
	require.NoError(t, rows.Scan(&n))
	require.False(t, n.Valid)
	require.False(t, rows.Next())
	require.True(t, rows.NextResultSet())
	require.False(t, rows.Next())
	require.True(t, rows.NextResultSet())
	var s string
	require.True(t, rows.Next())
	require.NoError(t, rows.Scan(&s))
	require.Equal(t, "last", s)
	require.False(t, rows.Next())
	require.False(t, rows.NextResultSet())
	require.NoError(t, rows.Err())
}

func TestRowsAffectedIsTheSumOfTheCounts(t *testing.T) {
	var inProc, hasCount bool
	h := &fakeHandler{run: func(_ context.Context, _ *tds.Request, w tds.Results) error {
		if err := w.Done(tds.End{Rows: 3, Counted: hasCount, InProc: inProc}); err != nil {
			return err
		}
		return w.Done(tds.End{Rows: 4, Counted: hasCount, InProc: inProc})
	}}
	db := open(t, serve(t, h, tds.Options{}))
	for _, c := range []struct {
		hasCount, inProc bool
		args             []any
		want             int64
	}{
		{hasCount: true, want: 7},
		{hasCount: true, inProc: true, args: []any{1}, want: 7},
		{hasCount: true, inProc: true, want: 7}, // EXEC in a batch
		{hasCount: false, want: 0},              // NOCOUNT
		{hasCount: false, inProc: true, args: []any{1}, want: 0},
	} {
		hasCount, inProc = c.hasCount, c.inProc
		result, err := db.ExecContext(within(t), "update q", c.args...)
		require.NoError(t, err)
		n, err := result.RowsAffected()
		require.NoError(t, err)
		require.Equal(t, c.want, n, "%+v", c)
	}
}

func TestAProcedureCalledByNameGetsItsParametersAsTheyWere(t *testing.T) {
	var got *tds.Request
	h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
		got = r
		return echo(2)(ctx, r, w)
	}}
	db := open(t, serve(t, h, tds.Options{}))
	var back any
	require.NoError(t, queryOne(within(t), db, &back, "sp_executesql",
		"select @body", "@body varbinary(max)", sql.Named("body", []byte{1, 2, 3})))
	require.Equal(t, []byte{1, 2, 3}, back)
	require.Equal(t, tds.RPC, got.Kind)
	require.Equal(t, "sp_executesql", got.Proc)
	nvarchar := func(n int) sqltype.Type { return sqltype.Type{Kind: sqltype.NVarChar, Size: n} }
	require.Equal(t, []tds.Param{
		{Type: nvarchar(12), Value: "select @body"},
		{Type: nvarchar(20), Value: "@body varbinary(max)"},
		{Name: "@body", Type: sqltype.Type{Kind: sqltype.VarBinary, Size: 3}, Value: []byte{1, 2, 3}},
	}, got.Params)
}

func TestAStatementWithArgumentsIsACallOfSpExecutesqlByNumber(t *testing.T) {
	var got atomic.Pointer[tds.Request]
	h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
		got.Store(r)
		return nothing(ctx, r, w)
	}}
	db := open(t, serve(t, h, tds.Options{}))
	_, err := db.ExecContext(within(t), "delete q where id = @id", sql.Named("id", int64(1)))
	require.NoError(t, err)
	require.Equal(t, "sp_executesql", got.Load().Proc)
	require.Equal(t, "delete q where id = @id", got.Load().Params[0].Value)
	require.Equal(t, "@id bigint", got.Load().Params[1].Value)

	_, err = db.ExecContext(within(t), "delete q")
	require.NoError(t, err)
	require.Equal(t, tds.Batch, got.Load().Kind)
	require.Equal(t, "delete q", got.Load().Text)
}

func TestOutputParametersAndReturnStatusReachTheCaller(t *testing.T) {
	h := &fakeHandler{run: func(_ context.Context, r *tds.Request, w tds.Results) error {
		for i := range r.Params {
			p := r.Params[i]
			if p.Name != "@text" && p.Name != "@n" || !p.Output {
				continue
			}
			switch p.Name {
			case "@text":
				p.Value = p.Value.(string) + " back"
			case "@n":
				p.Value = p.Value.(int64) + 1
			}
			if err := w.ReturnValue(i, p); err != nil {
				return err
			}
		}
		return w.ReturnStatus(-6)
	}}
	db := open(t, serve(t, h, tds.Options{}))
	text, n := "there and", int64(41)
	var status mssql.ReturnStatus
	_, err := db.ExecContext(within(t), "dbo.proc", sql.Named("in", 1),
		sql.Named("text", sql.Out{Dest: &text, In: true}), sql.Named("n", sql.Out{Dest: &n, In: true}), &status)
	require.NoError(t, err)
	require.Equal(t, "there and back", text)
	require.Equal(t, int64(42), n)
	require.Equal(t, mssql.ReturnStatus(-6), status)
}

func TestTooManyParametersAreRefusedAndTheConnectionStaysUsable(t *testing.T) {
	s := serve(t, &fakeHandler{run: nothing}, tds.Options{})
	db := open(t, s)
	args := make([]any, 2099)
	for i := range args {
		args[i] = int32(i)
	}
	_, err := db.ExecContext(within(t), "insert q", args...)
	require.Equal(t, int32(8003), mssqlError(t, err).Number)
	_, err = db.ExecContext(within(t), "insert q", args[1:]...)
	require.NoError(t, err)
	require.Len(t, s.Conns(), 1)
}

func TestRowsReachTheClientBeforeTheStatementHasEnded(t *testing.T) {
	proceed := make(chan struct{})
	h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
		first := answer(columns(intColumn("n")), row(int64(1)), tds.Results.Flush)
		if err := first(ctx, r, w); err != nil {
			return err
		}
		select {
		case <-proceed:
		case <-ctx.Done():
			return ctx.Err()
		}
		return answer(row(int64(2)), counted(2))(ctx, r, w)
	}}
	db := open(t, serve(t, h, tds.Options{}))
	rows, err := db.QueryContext(within(t), "select n")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	close(proceed)
	require.True(t, rows.Next())
	require.False(t, rows.Next())
	require.NoError(t, rows.Err())
}

func TestAnErrorOfClass20EndsTheConnection(t *testing.T) {
	s := serve(t, &fakeHandler{run: answer(message(sqltype.Error{Number: 3624, Class: 20, State: 1, Message: "assertion"}))}, tds.Options{})
	db := open(t, s)
	for range 2 {
		_, err := db.ExecContext(within(t), "select 1")
		require.ErrorAs(t, err, new(mssql.ServerError))
		require.Equal(t, int32(3624), mssqlError(t, err).Number)
	}
	require.Eventually(t, func() bool { return len(s.Conns()) == 0 }, patience, tick)
}

func TestAnErrorOfTheSessionIsSentAndEndsTheConnection(t *testing.T) {
	h := &fakeHandler{run: func(context.Context, *tds.Request, tds.Results) error { return sql.ErrNoRows }}
	db := open(t, serve(t, h, tds.Options{}))
	_, err := db.ExecContext(within(t), "select 1")
	require.ErrorAs(t, err, new(mssql.ServerError))
	require.Contains(t, mssqlError(t, err).Message, sql.ErrNoRows.Error())
}
