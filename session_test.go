package chanq

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// firewall is a database behind one: it forgets connections, and the driver learns of
// that when it has sent something.
type firewall struct {
	made, ran atomic.Int32 // connections; the last one that ran a statement
	forgotten atomic.Int32 // up to this one
	closed    atomic.Int32
}

var errNoAnswer = errors.New("no answer")

func (f *firewall) Driver() driver.Driver { return nil }

func (f *firewall) Connect(context.Context) (driver.Conn, error) {
	return &behind{f, f.made.Add(1)}, nil
}

type behind struct {
	*firewall
	number int32
}

func (c *behind) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *behind) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *behind) Close() error                        { c.closed.Add(1); return nil }

func (c *behind) Ping(context.Context) error {
	if c.number <= c.forgotten.Load() {
		return errNoAnswer
	}
	return nil
}

func (c *behind) ExecContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Result, error) {
	c.ran.Store(c.number)
	return driver.ResultNoRows, c.Ping(ctx)
}

func TestASessionThatWasIdleIsReplacedByOneThatAnswers(t *testing.T) {
	f := &firewall{}
	db := sql.OpenDB(f)
	defer db.Close()
	p := newSessions(db, postgres.Dialect, time.Hour, 1)
	defer p.end()
	run := func() error { return p.run(soon(t), sqlbatch.Statement{Text: "x"}, nil) }
	require.NoError(t, run())
	require.NoError(t, run())
	require.EqualValues(t, 1, f.made.Load(), "what is in use stays")
	others := []*sql.Conn{connectionOf(t, db), connectionOf(t, db)}
	for _, conn := range others {
		require.NoError(t, conn.Close()) // the *sql.DB keeps it for whoever asks next
	}
	f.forgotten.Store(3)
	p.maxIdle = 0
	require.NoError(t, run())
	require.EqualValues(t, 4, f.ran.Load())
	require.EqualValues(t, 3, f.closed.Load(), "the session's, and two that the *sql.DB had")
}

func TestAnOldSessionStaysWhileTheApplicationUsesAllConnections(t *testing.T) {
	f := &firewall{}
	db := sql.OpenDB(f)
	defer db.Close()
	db.SetMaxOpenConns(2)
	p := newSessions(db, postgres.Dialect, time.Nanosecond, 1)
	defer p.end()
	run := func() error { return p.run(soon(t), sqlbatch.Statement{Text: "x"}, nil) }
	for _, idle := range []time.Duration{time.Hour, 0} {
		p.maxIdle = idle
		app := connectionOf(t, db)
		require.NoError(t, run())
		before := f.ran.Load()
		require.NoError(t, run())
		require.Equal(t, before, f.ran.Load())
		require.NoError(t, app.Close())
	}
	before := f.ran.Load()
	require.NoError(t, run())
	require.NotEqual(t, before, f.ran.Load(), "renewed when there is a connection to spare")
}

func connectionOf(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(soon(t))
	require.NoError(t, err)
	return conn
}
