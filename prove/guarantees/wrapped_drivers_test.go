package guarantees

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Drivers that wrap drivers.
var wrappedDrivers = []test{
	{"AWrappedDriverWorksAsTheDriverThatItWraps", wrappedDriver},
	{"ADriverThatHidesResultSetsIsRefused", hiddenResultSets},
}

// wrappedDriver opens the database with a driver of a type unknown to chanq, which wraps errors.
func wrappedDriver(w *world) {
	w.Open()
	faults, _ := w.Connect()
	db, dialect := sql.OpenDB(wrapper{inner: faults}), w.Engine.ChanqDialect()
	w.Cleanup(func() { require.NoError(w, db.Close()) })
	_, err := chanq.Open[string](w.Soon(), db, "plain", chanq.Config{})
	require.ErrorContains(w, err, "set Config.Dialect")
	_, err = chanq.Open[string](w.Soon(), db, "plain", chanq.Config{Dialect: dialect})
	require.ErrorIs(w, err, chanq.ErrNoSchema)
	for _, spec := range []chanq.Spec{{Kind: chanq.KindPlain, Retain: time.Hour}, {Kind: chanq.KindOrdered, Slots: 2}} {
		name := spec.Kind.String()
		if w.Engine.Tables != nil {
			require.NoError(w, w.Migrate(name, chanq.Config{Dialect: dialect, Spec: spec}))
		}
		require.NoError(w, chanq.Migrate(w.Soon(), db, name, chanq.Config{Dialect: dialect, Spec: spec}))
		q := testdb.OpenOn[string](w, db, name, chanq.Config{Dialect: dialect})
		key := map[chanq.Kind]string{chanq.KindOrdered: "k"}[spec.Kind]

		// Each error must keep its meaning: the first causes a repetition, the second a query.
		once := false
		faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if (op.Kind == faultdb.Exec || op.Kind == faultdb.Query) && !once {
				once = true
				return faultdb.Fail(w.Failure(sqlbatch.RolledBack))
			}
			return faultdb.Fault{}
		})
		receipts, err := q.Send(w.Soon(), chanq.Message[string]{Body: "a", Key: key, DedupKey: "one"}, chanq.Message[string]{Body: "b", Key: key})
		require.NoError(w, err)
		require.True(w, once, "a send failed and was repeated")
		faults.Inject(nil)
		again, err := q.Send(w.Soon(), chanq.Message[string]{Body: "a", Key: key, DedupKey: "one"})
		require.NoError(w, err)
		require.Equal(w, []chanq.Receipt{{ID: receipts[0].ID, Duplicate: true}}, again)

		c := testdb.Start(w, q, chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { return 0 }})
		l := testdb.Take(w, c, 1)[0]
		require.Equal(w, "a", l.Body)
		require.NoError(w, l.Nack(errors.New("once more")))
		bodies := []string{}
		for range 2 {
			l := testdb.Take(w, c, 1)[0]
			bodies = append(bodies, l.Body)
			require.NoError(w, chanq.InTx(w.Soon(), db, func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.SendTx(ctx, tx, chanq.Message[string]{Body: l.Body + " later", Key: key, Delay: delayOf(spec)})
				return errors.Join(err, l.AckTx(ctx, tx))
			}))
		}
		slices.Sort(bodies)
		require.Equal(w, []string{"a", "b"}, bodies)
		if spec.Kind == chanq.KindOrdered {
			require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
			require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
		}
		require.NoError(w, c.Shutdown(w.Soon()))

		admin, err := chanqadmin.Open(w.Soon(), db, name, chanq.Config{Dialect: dialect})
		require.NoError(w, err)
		stats, err := admin.Stats(w.Soon())
		require.NoError(w, err)
		require.Equal(w, spec.Kind == chanq.KindPlain, stats.Scheduled == 2, "%+v", stats)
	}
	names, err := chanqadmin.Queues(w.Soon(), db, chanq.Config{Dialect: dialect})
	require.NoError(w, err)
	require.Equal(w, []string{"ordered", "plain"}, names)
	if w.Engine.Tables == nil {
		require.NoError(w, chanqadmin.DropWithMessages(w.Soon(), db, "plain", chanq.Config{Dialect: dialect}, chanqadmin.Change{}))
	}
}

// hiddenResultSets opens the database with a driver that passes on the first result set only. SQL Server returns errors in
// later ones.
func hiddenResultSets(w *world) {
	w.Open()
	faults, _ := w.Connect()
	db, dialect := sql.OpenDB(wrapper{inner: faults, first: true}), w.Engine.ChanqDialect()
	w.Cleanup(func() { require.NoError(w, db.Close()) })
	err := chanq.Migrate(w.Soon(), db, "plain", chanq.Config{Dialect: dialect})
	if dialect == chanq.DialectSQLServer {
		require.ErrorContains(w, err, "driver.RowsNextResultSet")
	} else if w.Engine.Tables == nil {
		require.NoError(w, err)
	}
}

// delayOf keeps messages of a plain queue scheduled; an ordered queue has no delays.
func delayOf(s chanq.Spec) time.Duration {
	if s.Kind == chanq.KindPlain {
		return time.Hour
	}
	return 0
}

// wrapper is a driver around another driver, like those for tracing. It passes on the optional interfaces of the inner driver.
type wrapper struct {
	inner driver.Connector
	first bool // it passes on the first result set of a statement only
}

func (w wrapper) Driver() driver.Driver            { return w }
func (w wrapper) Open(string) (driver.Conn, error) { return nil, errors.ErrUnsupported }

func (w wrapper) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := w.inner.Connect(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	return &wrappedConn{inner.(connOfDriver), w.first}, nil
}

type (
	connOfDriver interface {
		driver.Conn
		driver.ConnBeginTx
		driver.ConnPrepareContext
		driver.ExecerContext
		driver.QueryerContext
		driver.Pinger
		driver.SessionResetter
		driver.Validator
		driver.NamedValueChecker
	}
	stmtOfDriver interface {
		driver.Stmt
		driver.StmtExecContext
		driver.StmtQueryContext
		driver.NamedValueChecker
	}
	rowsOfDriver interface {
		driver.Rows
		driver.RowsNextResultSet
	}

	wrappedConn struct {
		connOfDriver
		first bool
	}
	wrappedStmt struct {
		stmtOfDriver
		first bool
	}
	wrappedTx   struct{ driver.Tx }
	wrappedRows struct{ rowsOfDriver }
)

func (c *wrappedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.connOfDriver.BeginTx(ctx, opts)
	return wrappedTx{tx}, wrap(err)
}

func (c *wrappedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	stmt, err := c.connOfDriver.PrepareContext(ctx, text)
	if err != nil {
		return nil, wrap(err)
	}
	return wrappedStmt{stmt.(stmtOfDriver), c.first}, nil
}

func (c *wrappedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.connOfDriver.ExecContext(ctx, text, args)
	return result, wrap(err)
}

func (c *wrappedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.connOfDriver.QueryContext(ctx, text, args)
	return wrapRows(rows, err, c.first)
}

func (s wrappedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.stmtOfDriver.ExecContext(ctx, args)
	return result, wrap(err)
}

func (s wrappedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.stmtOfDriver.QueryContext(ctx, args)
	return wrapRows(rows, err, s.first)
}

func (t wrappedTx) Commit() error   { return wrap(t.Tx.Commit()) }
func (t wrappedTx) Rollback() error { return wrap(t.Tx.Rollback()) }

func (r wrappedRows) Next(values []driver.Value) error { return wrap(r.rowsOfDriver.Next(values)) }

func wrapRows(rows driver.Rows, err error, first bool) (driver.Rows, error) {
	if err != nil {
		return nil, wrap(err)
	}
	if first {
		return struct{ driver.Rows }{rows}, nil
	}
	return wrappedRows{rows.(rowsOfDriver)}, nil
}

// wrap wraps an error, except those that database/sql compares with ==.
func wrap(err error) error {
	if err == nil || err == io.EOF || err == driver.ErrSkip {
		return err
	}
	return &wrappedError{err}
}

type wrappedError struct{ err error }

func (e *wrappedError) Error() string { return "traced: " + e.err.Error() }
func (e *wrappedError) Unwrap() error { return e.err }
