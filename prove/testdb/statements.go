package testdb

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// Runner is a *sql.DB, *sql.Conn or *sql.Tx.
type Runner interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
}

// MigrateTables creates the tables of a queue with the statements of its dialect.
func MigrateTables(t testing.TB, d sqlbatch.Dialect, db *sql.DB, n sqlbatch.Names) {
	t.Helper()
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	texts := d.Begin()
	for _, m := range d.Migrations(n) {
		for _, f := range m.Formers {
			former, err := Rows(ctx, conn, sqlbatch.Statement{Text: f.Ask})
			require.NoError(t, err)
			if len(former) > 0 {
				texts = append(texts, f.Add...)
			}
		}
		texts = append(texts, m.Statements...)
	}
	for _, text := range append(texts, d.Commit()) {
		_, err := conn.ExecContext(ctx, text)
		require.NoError(t, err, text)
	}
	_, err = Rows(ctx, conn, d.Queue(n).Record(sqlbatch.Version, n.Policy))
	require.NoError(t, err)
}

// Rows runs a statement and returns the rows of all its results.
func Rows(ctx context.Context, on Runner, st sqlbatch.Statement) (all [][]any, err error) {
	for _, prior := range st.Prior {
		if _, err := on.ExecContext(ctx, prior.Text, prior.Args...); err != nil {
			return nil, err
		}
	}
	rows, err := on.QueryContext(ctx, st.Text, st.Args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for next := true; next; next = rows.NextResultSet() {
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			row, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range row {
				into[i] = &row[i]
			}
			if err := rows.Scan(into...); err != nil {
				return nil, err
			}
			all = append(all, row)
		}
	}
	return all, rows.Err()
}
