package session

import (
	"context"
	"database/sql"

	"github.com/chanq/chanq/sqlbatch"
)

// Tx is a transaction that runs statements: chanq.Tx.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Scan reads a row of a statement's result, and is called for each of them.
type Scan = func(*sql.Rows) error

// RunTx runs a statement in the caller's transaction. See Part.Run.
func RunTx(ctx context.Context, tx Tx, st sqlbatch.Statement, scan Scan) error {
	for _, prior := range st.Prior {
		if _, err := tx.ExecContext(ctx, prior.Text, prior.Args...); err != nil {
			return err
		}
	}
	if scan == nil {
		_, err := tx.ExecContext(ctx, st.Text, st.Args...)
		return err
	}
	rows, err := tx.QueryContext(ctx, st.Text, st.Args...)
	if err != nil {
		return err
	}
	return drain(rows, scan)
}

// RunOn runs a statement without Prior on the caller's connection. See Part.Run.
func RunOn(ctx context.Context, conn *sql.Conn, d sqlbatch.Dialect, st sqlbatch.Statement,
	scan Scan) error {
	return (&session{conn: conn, dialect: d}).one(ctx, st, scan)
}

// drain reads every row of every result set. An error might follow any number of
// rows: no row is valid before drain returns nil.
func drain(rows *sql.Rows, scan Scan) error {
	defer rows.Close()
	for {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		if !rows.NextResultSet() {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}
