package pgxtx_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/pgxtx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeTx is a transaction without a server.
type fakeTx struct {
	pgx.Tx
	rows  *fakeRows
	err   error // of each statement
	args  []any // of the last statement
	ended []string
}

func (f *fakeTx) Exec(_ context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	f.args = args
	return pgconn.NewCommandTag("DELETE 3"), f.err
}

func (f *fakeTx) Query(_ context.Context, _ string, args ...any) (pgx.Rows, error) {
	f.args = args
	return f.rows, f.err
}

func (f *fakeTx) Commit(context.Context) error   { return f.end("commit") }
func (f *fakeTx) Rollback(context.Context) error { return f.end("rollback") }

func (f *fakeTx) end(how string) error {
	if len(f.ended) > 0 {
		return pgx.ErrTxClosed
	}
	f.ended = append(f.ended, how)
	return nil
}

// fakePool is a pool of one transaction.
type fakePool struct {
	tx  *fakeTx
	err error
}

func (f fakePool) BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error) { return f.tx, f.err }

// fakeRows has rows as a server sends them.
type fakeRows struct {
	pgx.Rows
	fields []pgconn.FieldDescription
	values [][][]byte
	next   int
	err    error // after the last row
	closed bool
}

func (f *fakeRows) FieldDescriptions() []pgconn.FieldDescription { return f.fields }
func (f *fakeRows) Close()                                       { f.closed = true }
func (f *fakeRows) Next() bool                                   { f.next++; return f.next <= len(f.values) }

func (f *fakeRows) Err() error {
	if f.next > len(f.values) {
		return f.err
	}
	return nil
}

func (f *fakeRows) Scan(dest ...any) error {
	for i, into := range dest {
		if err := pgtype.NewMap().Scan(f.fields[i].DataTypeOID, f.fields[i].Format, f.values[f.next-1][i], into); err != nil {
			return err
		}
	}
	return nil
}

func TestValuesOfBothFormatsAreThoseOfDatabaseSQL(t *testing.T) {
	at := time.Date(2026, 11, 23, 8, 30, 0, 123456000, time.UTC)
	id := chanq.NewID()
	for name, c := range map[string]struct {
		oid   uint32
		value any
		want  any
	}{
		"bool":            {pgtype.BoolOID, true, true},
		"smallint":        {pgtype.Int2OID, int16(-3), int64(-3)},
		"integer":         {pgtype.Int4OID, int32(-70000), int64(-70000)},
		"bigint":          {pgtype.Int8OID, int64(-1) << 63, int64(-1) << 63},
		"oid":             {pgtype.OIDOID, uint32(1) << 31, int64(1) << 31},
		"real":            {pgtype.Float4OID, float32(0.1), float64(float32(0.1))},
		"double":          {pgtype.Float8OID, 0.1, 0.1},
		"numeric":         {pgtype.NumericOID, "12345678901234567890.5", "12345678901234567890.5"},
		"text":            {pgtype.TextOID, "käse\n", "käse\n"},
		"text, empty":     {pgtype.TextOID, "", ""},
		"bytea":           {pgtype.ByteaOID, []byte{0, 255}, []byte{0, 255}},
		"bytea, empty":    {pgtype.ByteaOID, []byte{}, []byte{}},
		"uuid":            {pgtype.UUIDOID, [16]byte(id), id.String()},
		"timestamptz":     {pgtype.TimestamptzOID, at, at},
		"timestamp":       {pgtype.TimestampOID, at, at},
		"date":            {pgtype.DateOID, at, at.Truncate(24 * time.Hour)},
		"json":            {pgtype.JSONOID, []byte(`{"a": 1}`), []byte(`{"a": 1}`)},
		"jsonb":           {pgtype.JSONBOID, []byte(`[1]`), []byte(`[1]`)},
		"array of text":   {pgtype.TextArrayOID, []string{"a", "b c"}, `{a,"b c"}`},
		"array of bigint": {pgtype.Int8ArrayOID, []int64{1, -2}, `{1,-2}`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, format := range []int16{pgx.BinaryFormatCode, pgx.TextFormatCode} {
				_, isText := c.want.(string)
				if isText && format == pgx.BinaryFormatCode {
					continue // it is asked for as text
				}
				encoded, err := pgtype.NewMap().Encode(c.oid, format, c.value, []byte{})
				require.NoError(t, err)
				fields := []pgconn.FieldDescription{{Name: "v", DataTypeOID: c.oid, Format: format}, {Name: "n", DataTypeOID: c.oid, Format: format}}
				tx := &fakeTx{rows: &fakeRows{fields: fields, values: [][][]byte{{encoded, nil}, {nil, encoded}}}}
				rows, err := pgxtx.Wrap(tx).QueryContext(t.Context(), "SELECT")
				require.NoError(t, err)
				columns, err := rows.Columns()
				require.NoError(t, err)
				require.Equal(t, []string{"v", "n"}, columns)
				for _, swapped := range []bool{false, true} {
					require.True(t, rows.Next(), rows.Err())
					var got, null any
					require.NoError(t, rows.Scan(&got, &null))
					if swapped {
						got, null = null, got
					}
					require.Nil(t, null)
					if want, isTime := c.want.(time.Time); isTime {
						require.True(t, want.Equal(got.(time.Time)), got)
					} else {
						require.Equal(t, c.want, got)
					}
				}
				require.False(t, rows.Next())
				require.NoError(t, rows.Err())
				require.NoError(t, rows.Close())
				require.True(t, tx.rows.closed)
			}
		})
	}
}

// Values that chanq passes reach pgx as they are.
func TestArgumentsAreLeftToPgx(t *testing.T) {
	tx := &fakeTx{rows: &fakeRows{}}
	args := []any{"{1,2}", []byte{1}, int64(3), nil, true, chanq.NewID(), []string{"a"}}
	rows, err := pgxtx.Wrap(tx).QueryContext(t.Context(), "SELECT", args...)
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	require.IsType(t, pgx.QueryResultFormatsByOID{}, tx.args[0])
	require.Equal(t, args, tx.args[1:])
	result, err := pgxtx.Wrap(tx).ExecContext(t.Context(), "DELETE", args...)
	require.NoError(t, err)
	require.Equal(t, args, tx.args)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
}

// An error of the server comes before the first row, or after any number of them.
func TestErrorsOfPgxComeThrough(t *testing.T) {
	refused := &pgconn.PgError{Code: "40P01", Message: "deadlock detected"}
	is := func(err error) {
		t.Helper()
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Equal(t, "40P01", pg.SQLState())
	}
	_, err := pgxtx.Wrap(&fakeTx{err: refused}).ExecContext(t.Context(), "DELETE")
	is(err)
	_, err = pgxtx.Wrap(&fakeTx{err: refused}).QueryContext(t.Context(), "SELECT")
	is(err)
	none := &fakeTx{rows: &fakeRows{err: refused}}
	_, err = pgxtx.Wrap(none).QueryContext(t.Context(), "SELECT")
	is(err)
	require.True(t, none.rows.closed)

	fields := []pgconn.FieldDescription{{Name: "n", DataTypeOID: pgtype.TextOID}}
	rows, err := pgxtx.Wrap(&fakeTx{rows: &fakeRows{fields: fields, values: [][][]byte{{[]byte("1")}}, err: refused}}).QueryContext(t.Context(), "SELECT")
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.False(t, rows.Next())
	is(rows.Err())

	for _, run := range []func(*pgxtx.Tx) error{
		func(tx *pgxtx.Tx) error { _, err := tx.ExecContext(t.Context(), "DELETE"); return err },
		func(tx *pgxtx.Tx) error { _, err := tx.QueryContext(t.Context(), "SELECT"); return err },
	} {
		err := run(pgxtx.Wrap(&fakeTx{err: pgx.ErrTxClosed}))
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		require.ErrorContains(t, err, "the transaction was committed or rolled back before: begin another one")
	}
	require.ErrorContains(t, (&chanq.Lease[string]{}).AckTx(t.Context(), pgxtx.Wrap(nil)), "tx must not be nil")
}

func TestInTxCommitsOrRollsBackOnce(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		fn    func(context.Context, *pgxtx.Tx) error
		ended string
		err   string
	}{
		"commit":       {func(context.Context, *pgxtx.Tx) error { return nil }, "commit", ""},
		"rollback":     {func(context.Context, *pgxtx.Tx) error { return failed }, "rollback", "failed"},
		"panic":        {func(context.Context, *pgxtx.Tx) error { panic(failed) }, "rollback", "failed"},
		"ended by fn":  {func(ctx context.Context, tx *pgxtx.Tx) error { return tx.Commit(ctx) }, "commit", "fn has ended the transaction"},
		"another InTx": {func(ctx context.Context, _ *pgxtx.Tx) error { return pgxtx.InTx(ctx, fakePool{}, nothing) }, "rollback", "another InTx"},
	} {
		t.Run(name, func(t *testing.T) {
			tx := &fakeTx{}
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = fmt.Errorf("panic: %v", p)
					}
				}()
				return pgxtx.InTx(t.Context(), fakePool{tx: tx}, c.fn)
			}()
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			require.Equal(t, []string{c.ended}, tx.ended)
		})
	}
	var failure *chanq.OpError
	require.ErrorAs(t, pgxtx.InTx(t.Context(), fakePool{err: failed}, nothing), &failure)
	require.Equal(t, "begin", failure.Op)
	require.ErrorIs(t, failure, failed)
	require.Error(t, pgxtx.InTx(t.Context(), nil, nothing))
	require.Error(t, pgxtx.InTx(t.Context(), fakePool{}, nil))
}

func nothing(context.Context, *pgxtx.Tx) error { return nil }

// A pgx.Tx is for one goroutine, so a function that ignores the end of its context is not interrupted by a rollback.
func TestTheRollbackWaitsForTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tx := &fakeTx{}
		ctx, cancel := context.WithCancel(t.Context())
		err := pgxtx.InTx(ctx, fakePool{tx: tx}, func(context.Context, *pgxtx.Tx) error {
			cancel()
			time.Sleep(time.Minute)
			require.Empty(t, tx.ended)
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []string{"rollback"}, tx.ended)
	})
}
