package faultdb_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

var errInjected = errors.New("injected")

// open creates a table of numbers, and a pool of one connection that injects.
func open(t *testing.T) (*faultdb.Connector, *sql.DB) {
	t.Helper()
	inner, err := embedded.Connector(":memory:")
	require.NoError(t, err)
	c := faultdb.New(inner)
	db := sql.OpenDB(c)
	t.Cleanup(func() {
		c.Inject(nil)
		require.NoError(t, db.Close())
	})
	db.SetMaxOpenConns(1)
	_, err = db.Exec("CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	return c, db
}

func count(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow("SELECT count(*) FROM t").Scan(&n))
	return n
}

// next strikes the next operation of a kind, once.
func next(c *faultdb.Connector, k faultdb.Kind, f faultdb.Fault) {
	struck := false
	c.Inject(func(op faultdb.Op) faultdb.Fault {
		if struck || op.Kind != k {
			return faultdb.Fault{}
		}
		struck = true
		return f
	})
}

func TestAFaultComesBeforeTheOperationOrAfterIt(t *testing.T) {
	c, db := open(t)
	for _, f := range []struct {
		name    string
		fault   faultdb.Fault
		applied int
	}{
		{"fail", faultdb.Fail(errInjected), 0},
		{"fail, applied", faultdb.Fail(errInjected).Applied(), 1},
		{"cut", faultdb.Cut(errInjected), 0},
		{"cut, applied", faultdb.Cut(errInjected).Applied(), 1},
	} {
		before := count(t, db)
		next(c, faultdb.Exec, f.fault)
		_, err := db.Exec("INSERT INTO t VALUES (1)")
		require.ErrorIs(t, err, errInjected, f.name)
		require.Equal(t, before+f.applied, count(t, db), f.name)

		before = count(t, db)
		next(c, faultdb.Query, f.fault)
		_, err = db.Query("INSERT INTO t VALUES (1) RETURNING n")
		require.ErrorIs(t, err, errInjected, f.name)
		require.Equal(t, before+f.applied, count(t, db), f.name)

		before = count(t, db)
		next(c, faultdb.Commit, f.fault)
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.ErrorIs(t, tx.Commit(), errInjected, f.name)
		if f.name == "fail" {
			continue // the transaction is still open on its connection
		}
		require.Equal(t, before+f.applied, count(t, db), f.name)
	}
}

func TestRowsComeBeforeTheErrorOfAfterRows(t *testing.T) {
	c, db := open(t)
	for n := range 3 {
		_, err := db.Exec("INSERT INTO t VALUES (?)", n)
		require.NoError(t, err)
	}
	for n := range 4 {
		next(c, faultdb.Query, faultdb.Fail(errInjected).AfterRows(n+1))
		rows, err := db.Query("SELECT n FROM t ORDER BY n")
		require.NoError(t, err)
		var got int
		for rows.Next() {
			var v int
			require.NoError(t, rows.Scan(&v))
			require.Equal(t, got, v)
			got++
		}
		require.Equal(t, min(n+1, 3), got)
		require.ErrorIs(t, rows.Err(), errInjected)
		require.NoError(t, rows.Close())
	}
}

func TestAFailoverBreaksConnectionsAndRedirectsNewOnes(t *testing.T) {
	c, db := open(t)
	_, err := db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	other, err := embedded.Connector(":memory:")
	require.NoError(t, err)
	kept, err := db.Conn(t.Context())
	require.NoError(t, err)
	c.Redirect(other, errInjected)
	_, err = kept.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.ErrorIs(t, err, errInjected)
	require.NoError(t, kept.Close())
	_, err = db.Exec("CREATE TABLE t (n INTEGER)")
	require.NoError(t, err, "it does not exist yet")
	require.Zero(t, count(t, db))
}

func TestACutConnectionIsReplaced(t *testing.T) {
	c, db := open(t)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	stmt, err := conn.PrepareContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	next(c, faultdb.Exec, faultdb.Cut(errInjected))
	_, err = stmt.Exec()
	require.ErrorIs(t, err, errInjected)
	_, err = stmt.Exec()
	require.Error(t, err, "the connection is gone")
	require.NotPanics(t, func() { stmt.Close() })
	conn.Close()
	require.Zero(t, count(t, db))
	now, most := c.Conns()
	require.Equal(t, 1, now)
	require.Equal(t, 1, most)

	c.CutAll(errInjected)
	_, err = db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err, "the pool notices a connection that was cut while idle")
}

func TestHangEndsWithItsContextAndHoldWithItsGate(t *testing.T) {
	c, db := open(t)
	next(c, faultdb.Exec, faultdb.Hang())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, count(t, db))

	gate, held := make(chan struct{}), make(chan struct{})
	c.Inject(func(op faultdb.Op) faultdb.Fault {
		if op.Kind != faultdb.Exec {
			return faultdb.Fault{}
		}
		close(held)
		return faultdb.Hold(gate)
	})
	done := make(chan error, 1)
	go func() {
		_, err := db.Exec("INSERT INTO t VALUES (1)")
		done <- err
	}()
	<-held
	require.Empty(t, done)
	close(gate)
	require.NoError(t, <-done)
	c.Inject(nil)
	require.Equal(t, 1, count(t, db))
}

func TestEachOperationIsNumberedAndNamed(t *testing.T) {
	c, db := open(t)
	from := c.Ops()
	var seen []string
	c.Inject(func(op faultdb.Op) faultdb.Fault {
		require.Equal(t, from+len(seen), op.N)
		seen = append(seen, op.Kind.String())
		return faultdb.Fault{}
	})
	tx, err := db.Begin()
	require.NoError(t, err)
	stmt, err := tx.Prepare("INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	_, err = stmt.Exec(1)
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow("SELECT 1").Scan(new(int)))
	require.NoError(t, tx.Commit())
	tx, err = db.Begin()
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.Equal(t, []string{"begin", "prepare", "exec", "query", "commit", "begin", "rollback"}, seen)

	next(c, faultdb.Connect, faultdb.Fail(errInjected))
	db.SetMaxIdleConns(-1)
	require.ErrorIs(t, db.Ping(), errInjected)
}
