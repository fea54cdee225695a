// Package pgxtx lets chanq send, ack and cancel in a transaction of pgx, for example of a pgxpool.Pool, and with the queries that sqlc
// generates for pgx.
//
// InTx runs such a transaction, as chanq.InTx does for database/sql. In a transaction that you begin yourself, give chanq Wrap(tx):
//
//	_, err := mails.SendTx(ctx, pgxtx.Wrap(tx), chanq.Msg("Welcome"))
//
// chanq runs its statements on the connection of the transaction, and opens none. The queue itself needs a *sql.DB: for a pool,
// stdlib.OpenDBFromPool of pgx returns one.
package pgxtx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chanq/chanq"
)

// Tx is a transaction of pgx that is also a chanq.Tx. As any pgx.Tx it is for one goroutine at a time, and rows must be closed before the
// next statement.
type Tx struct{ pgx.Tx }

var _ chanq.Tx = (*Tx)(nil)

// Wrap returns tx as a chanq.Tx, for SendTx, AckTx and CancelTx. It makes no database call, and there is nothing to close. What chanq does
// is part of tx, and of its savepoint if tx was begun in another transaction. Commit and roll back tx as before.
//
// After the commit call Queue.Wake; without it idle consumers find the messages at their next poll. The consumer of a lease that was
// acked learns of the commit as Delivery.AckTx describes. InTx does both.
func Wrap(tx pgx.Tx) *Tx {
	if tx == nil {
		return nil
	}
	return &Tx{tx}
}

// ExecContext runs a statement in the transaction.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.Exec(ctx, query, args...)
	if err != nil {
		return nil, explain(err)
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

// QueryContext runs a query in the transaction. Values are converted as package stdlib of pgx does. The rows must be closed before the
// next statement of the transaction.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	db := sql.OpenDB(connector{&conn{tx: t.Tx}}) // only database/sql makes a *sql.Rows
	defer db.Close()                             // ends its goroutine; rows that are open stay so
	return db.QueryContext(ctx, query, args...)
}

// explain adds to an error of pgx what is wrong.
func explain(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("the transaction was committed or rolled back before: begin another one: %w", err)
	}
	return err
}

// Beginner begins transactions: a *pgxpool.Pool or a *pgx.Conn. A pgx.Tx is none, because the commit of a nested transaction is no commit.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// InTx begins a transaction with the default isolation level, calls fn, and commits or rolls back as chanq.InTx does, with the same
// effects on consumers, leases and the history, and the same errors. fn must return nil or an error instead of ending tx. It gives tx to
// its own queries and to chanq, and to chanq also its context:
//
//	err := pgxtx.InTx(ctx, pool, func(ctx context.Context, tx *pgxtx.Tx) error {
//		if err := queries.WithTx(tx).CreateCustomer(ctx, name); err != nil {
//			return err
//		}
//		_, err := mails.SendTx(ctx, tx, chanq.Msg("Welcome, "+name))
//		return err
//	})
//
// Unlike chanq.InTx it cannot refuse calls of fn that are not part of the transaction, such as Send.
func InTx(ctx context.Context, db Beginner, fn func(ctx context.Context, tx *Tx) error) error {
	if db == nil || fn == nil {
		return errors.New("chanq: in tx: db and fn must not be nil")
	}
	c := &conn{db: db}
	defer c.rollBack(ctx)
	through := sql.OpenDB(connector{c})
	defer through.Close()
	return chanq.InTx(ctx, through, func(ctx context.Context, _ *sql.Tx) error { return fn(ctx, &Tx{c.tx}) })
}

// conn is a connection of database/sql on which a transaction is open, or begins.
type conn struct {
	db Beginner // of InTx
	tx pgx.Tx   // nil until db has begun it
}

// rollbackTimeout bounds a rollback. If it fails, pgx closes the connection, and the server rolls back.
const rollbackTimeout = time.Second

// rollBack rolls back what was not committed.
func (c *conn) rollBack(ctx context.Context) {
	if c.tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = c.tx.Rollback(ctx)
}

func (c *conn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	tx, err := c.db.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return nil, err
	}
	c.tx = tx
	return ending{ctx, tx}, nil
}

// ending is the transaction of InTx.
type ending struct {
	ctx context.Context
	tx  pgx.Tx
}

func (e ending) Commit() error {
	err := e.tx.Commit(e.ctx)
	if errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("%w: %w", sql.ErrTxDone, err) // fn has ended it
	}
	return err
}

// Rollback leaves the rollback to InTx: database/sql might call it while fn uses the transaction.
func (e ending) Rollback() error { return nil }

func (c *conn) QueryContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Rows, error) {
	args := []any{formats}
	for _, arg := range named {
		args = append(args, arg.Value)
	}
	rows, err := c.tx.Query(ctx, query, args...)
	if err != nil {
		return nil, explain(err)
	}
	return open(rows)
}

// CheckNamedValue leaves the conversion of all arguments to pgx.
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// Prepare, Begin and Close complete a driver.Conn. database/sql calls only Close, since the connection has better methods; the transaction
// is not its own.
func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *conn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *conn) Close() error                        { return nil }

// connector connects to one connection.
type connector struct{ conn *conn }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.conn, nil }
func (c connector) Driver() driver.Driver                        { return c }
func (c connector) Open(string) (driver.Conn, error)             { return nil, errors.ErrUnsupported }
