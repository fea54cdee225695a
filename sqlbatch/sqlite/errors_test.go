package sqlite_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestClassifiesByCode(t *testing.T) {
	for n, want := range map[int]sqlbatch.Class{
		5: sqlbatch.RolledBack, 6: sqlbatch.RolledBack, 5 | 1<<8: sqlbatch.RolledBack, 7: sqlbatch.RolledBack, 9: sqlbatch.RolledBack,
		13: sqlbatch.Refused, 14: sqlbatch.Refused,
		1555: sqlbatch.Duplicate, 2067: sqlbatch.Duplicate,
		19: sqlbatch.BadRow, 1299: sqlbatch.BadRow, 18: sqlbatch.BadRow,
		1: sqlbatch.NoSchema, 3: sqlbatch.Permanent, 11: sqlbatch.Permanent, 26: sqlbatch.Permanent,
		10: sqlbatch.Unknown, 99: sqlbatch.Unknown,
	} {
		require.Equal(t, want, sqlite.Dialect.Classify(fmt.Errorf("wrapped: %w", coded(n))), "code %d", n)
	}
	require.Equal(t, sqlbatch.Refused, sqlite.Dialect.Classify(&sqlbatch.RunError{Err: coded(1)}), "its text compiles")
	require.Equal(t, sqlbatch.BadRow, sqlite.Dialect.Classify(&sqlbatch.RunError{Err: coded(1811)}), "an error that a trigger raises")
	require.Equal(t, sqlbatch.Unknown, sqlite.Dialect.Classify(context.DeadlineExceeded))
	require.Equal(t, sqlbatch.Unknown, sqlite.Dialect.Classify(fmt.Errorf("locked")), "texts are never compared")

	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	row := sqlbatch.Row{ID: [16]byte{1}, Body: []byte("b"), Key: "k"}
	table.run(table.q.Enqueue([]sqlbatch.Row{row}))
	other := row
	other.ID = [16]byte{2}
	for _, rows := range [][]sqlbatch.Row{{row}, {other}} {
		st := table.q.Enqueue(rows)
		_, err := table.conn.ExecContext(t.Context(), st.Text, st.Args...)
		require.Equal(t, sqlbatch.Duplicate, sqlite.Dialect.Classify(err), err)
	}
	missing := sqlite.Dialect.Queue(sqlbatch.Names{Queue: "missing"}).Enqueue([]sqlbatch.Row{row})
	_, err := table.conn.ExecContext(t.Context(), missing.Text, missing.Args...)
	require.Equal(t, sqlbatch.NoSchema, sqlite.Dialect.Classify(err), err)
}

type coded int

func (c coded) Code() int     { return int(c) }
func (c coded) Error() string { return fmt.Sprint("code ", int(c)) }
