package postgres_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

func TestClassifiesBySQLState(t *testing.T) {
	classes := map[sqlbatch.Class][]string{
		sqlbatch.RolledBack: {"40001", "40P01", "40000", "55P03", "55006", "57014", "25P02", "25P03"},
		sqlbatch.Refused:    {"08001", "08004", "53000", "53100", "53200", "53300", "53400", "57P03", "57P05", "28000", "28P01", "25006", "3D000", "26000", "42P05"},
		sqlbatch.Unknown:    {"08000", "08003", "08006", "08007", "08P01", "57P01", "57P02", "40003", "01000", "?????", "58000", "58030", "58P01", "XX000", "XX001", "XX002"},
		sqlbatch.Duplicate:  {"23505"},
		sqlbatch.BadRow:     {"22001", "22021", "22P05", "23502", "23503", "23514", "54000", "P0001"},
		sqlbatch.NoSchema:   {"42P01", "42703", "3F000"},
		sqlbatch.Permanent:  {"42501", "42601", "42804", "42883", "0A000"},
	}
	for class, states := range classes {
		for _, state := range states {
			err := fmt.Errorf("ack: %w", &pgconn.PgError{Code: state})
			require.Equal(t, class.String(), postgres.Dialect.Classify(err).String(), state)
		}
	}
	for _, err := range []error{driver.ErrBadConn, io.ErrUnexpectedEOF, context.DeadlineExceeded, context.Canceled, errors.New("?"),
		&net.OpError{Op: "read", Err: errors.New("reset")}, &pgconn.PgError{}} {
		require.Equal(t, "unknown", postgres.Dialect.Classify(err).String(), err)
	}
	require.Equal(t, "refused", postgres.Dialect.Classify(sql.ErrConnDone).String())
}

// Citus does not forward the SQLSTATE of errors of the COPY that it makes from an INSERT.
func TestClassifiesErrorsOfACopyOfCitusByTheirText(t *testing.T) {
	for text, class := range map[string]string{
		`duplicate key value violates unique constraint "ux_chanq_orders_102013"`:                       "duplicate",
		`new row for relation "chanq_orders_102013" violates check constraint "ck_chanq_orders_102013"`: "bad row",
		`null value in column "a" of relation "chanq_orders_102013" violates not-null constraint`:       "bad row",
		`canceling statement due to lock timeout`:                                                       "rolled back",
		`canceling statement due to statement timeout`:                                                  "rolled back",
		`deadlock detected`: "rolled back",
		`could not serialize access due to read/write dependencies among transactions`:                                                "rolled back",
		`failure on connection marked as essential: 127.0.0.1:9701`:                                                                   "unknown",
		`connection to the remote node app@127.0.0.1:9701 failed with the following error: server closed the connection unexpectedly`: "unknown",
		`cannot execute command because a local execution has accessed a placement in the transaction`:                                "unknown",
	} {
		require.Equal(t, class, postgres.Dialect.Classify(&pgconn.PgError{Code: "XX000", Message: text}).String(), text)
		require.Equal(t, "unknown", postgres.Dialect.Classify(&pgconn.PgError{Code: "58000", Message: text}).String())
	}
}

// A node of Citus is unavailable: the statement might have run there.
func TestAnErrorOfAnUnavailableCitusNodeIsUnknown(t *testing.T) {
	err := &pgconn.PgError{Code: "08006", Message: "connection to the remote node app@127.0.0.1:9701 failed with the following error: Connection refused"}
	require.Equal(t, "unknown", postgres.Dialect.Classify(err).String())
}

// Errors as a server and pgx return them.
func TestClassifiesTheErrorsOfAServer(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)})
	class := func(err error) string {
		t.Helper()
		require.Error(t, err)
		return postgres.Dialect.Classify(err).String()
	}
	inTx := func(settings string, st sqlbatch.Statement) string {
		t.Helper()
		tx := q.begin()
		_, err := tx.Exec(settings)
		require.NoError(t, err)
		_, err = suite.Rows(q.ctx, tx, st)
		require.NoError(t, tx.Rollback())
		return class(err)
	}
	one := q.Queue.Enqueue([]sqlbatch.Row{{ID: id(1)}})
	claim := q.Claim(claimOf(1))

	_, err := suite.Rows(q.ctx, q.db, one)
	require.Equal(t, "duplicate", class(err))
	_, err = suite.Rows(q.ctx, q.db, q.Queue.Enqueue([]sqlbatch.Row{{ID: id(2), Key: "\x00"}}))
	require.Equal(t, "bad row", class(err))
	_, err = suite.Rows(q.ctx, q.db, postgres.Dialect.Queue(sqlbatch.Names{Queue: "other"}).NextDue(sqlbatch.Heads{}))
	require.Equal(t, "no schema", class(err))
	_, err = suite.Rows(q.ctx, q.db, postgres.Dialect.Queue(sqlbatch.Names{Schema: "other", Queue: "orders"}).NextDue(sqlbatch.Heads{}))
	require.Equal(t, "no schema", class(err))
	require.Equal(t, "refused", inTx(`SET TRANSACTION READ ONLY`, claim))
	require.Equal(t, "permanent", inTx(`SET LOCAL ROLE pg_monitor`, claim))
	require.Equal(t, "rolled back", inTx(`SET LOCAL statement_timeout = 1`, sqlbatch.Statement{Text: `SELECT pg_sleep(60)`}))

	holder := q.begin()
	require.Len(t, q.claim(holder, 1), 1)
	require.Equal(t, "rolled back", inTx(`SET LOCAL lock_timeout = 1`, q.Cancel([][16]byte{id(1)})))
	require.NoError(t, holder.Rollback())
}

func TestClassifiesADeadlock(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2)})
	tx := q.begin()
	q.rows(tx, q.Cancel([][16]byte{id(2)}))
	other := make(chan error, 1)
	go func() {
		_, err := suite.Rows(q.ctx, q.db, q.Cancel([][16]byte{id(1), id(2)}))
		other <- err
	}()
	q.waitForLock()
	_, mine := suite.Rows(q.ctx, tx, q.Cancel([][16]byte{id(1)}))
	if mine == nil {
		require.NoError(t, tx.Rollback())
		mine = <-other
	} else {
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-other)
	}
	require.Equal(t, "rolled back", postgres.Dialect.Classify(mine).String())
}

func TestAnEndedSessionIsUnknownAndARefusedLoginIsNot(t *testing.T) {
	config := pgtest.Config(t)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	var pid int
	require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	ended := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(t.Context(), `SELECT pg_sleep(60)`)
		ended <- err
	}()
	require.Eventually(t, func() bool {
		var ok bool
		return db.QueryRow(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'`, pid).Scan(&ok) == nil && ok
	}, time.Minute, time.Millisecond)
	require.Equal(t, "unknown", postgres.Dialect.Classify(<-ended).String())
	conn.Close()

	cancelled, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = db.ExecContext(cancelled, `SELECT pg_sleep(60)`)
	require.Equal(t, "unknown", postgres.Dialect.Classify(err).String())

	refusals := map[string]func(*pgx.ConnConfig){
		"no server":   func(c *pgx.ConnConfig) { c.Host, c.Port = "127.0.0.1", closedPort(t) },
		"no such dir": func(c *pgx.ConnConfig) { c.Host = t.TempDir() },
		"no database": func(c *pgx.ConnConfig) { c.Database += "_gone" },
		"no user":     func(c *pgx.ConnConfig) { c.User = "nobody_of_this_name" },
	}
	for name, spoil := range refusals {
		c := config.Copy()
		c.Fallbacks = nil
		spoil(c)
		bad := stdlib.OpenDB(*c)
		require.Equal(t, "refused", postgres.Dialect.Classify(bad.Ping()).String(), name)
		bad.Close()
	}
}

func closedPort(t *testing.T) uint16 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestMigrationRefusesADatabaseThatCannotHoldAllText(t *testing.T) {
	db := pgtest.Encoding(t, "LATIN1")
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for _, text := range postgres.Dialect.Begin() {
		if _, err = conn.ExecContext(t.Context(), text); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "LATIN1")
	require.Equal(t, "permanent", postgres.Dialect.Classify(err).String())
}
