package histories

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// sessions tracks which sessions of a PostgreSQL server this process has and has given up. A
// statement whose caller gave up might still be applied: the server continues until it notices, and
// only the end of the session shows that it has stopped. The number of open connections of a
// *sql.DB does not show it: it includes connections that are still being made, which the server
// does not have, and abandoned connections that are not closed yet.
//
// On Citus, sessions on other nodes work for a session and might last longer.
type sessions struct {
	activity string // lists the server's processes; "" if no statement outlives its caller's context
	name     string // application name of this process's sessions

	mu         sync.Mutex
	held, gone map[uint32]bool // by the server's process ID
	faults     *faultdb.Connector
}

const (
	// Whether a session belongs to this process (by its name), and its process ID.
	postgresActivity = `SELECT true, pid FROM pg_stat_activity WHERE application_name = $1`
	// The other sessions work for the session of any client, whose process ID is returned.
	citusActivity = `SELECT application_name = $1, CASE WHEN application_name = $1 THEN pid ELSE global_pid % 10000000000 END
FROM citus_stat_activity WHERE application_name = $1 OR is_worker_query`
)

// connector opens an address, and tracks its connections if necessary.
func (s *sessions) connector(t testing.TB, e testdb.Engine, address string) driver.Connector {
	if e.ConnectWith == nil {
		connector, err := e.Connect(address)
		require.NoError(t, err)
		s.faults = faultdb.New(connector)
		return s.faults
	}
	id := chanq.NewID()
	s.activity, s.name = postgresActivity, fmt.Sprintf("chanq histories %x", id[8:]) // at most 63 bytes
	if e.Needs == pgtest.CitusVariable {
		s.activity = citusActivity
	}
	s.held, s.gone = map[uint32]bool{}, map[uint32]bool{}
	connector, err := e.ConnectWith(address, func(c *pgx.ConnConfig) {
		c.Tracer = s
		c.RuntimeParams["application_name"] = s.name
	})
	require.NoError(t, err)
	s.faults = faultdb.New(connector)
	return s.faults
}

// settle waits until the server has ended the abandoned sessions.
func (s *sessions) settle(t testdb.T, db *sql.DB) {
	if s.activity == "" {
		return
	}
	testdb.Eventually(t, "the server has ended the abandoned sessions", func() bool {
		rows, err := db.QueryContext(testdb.Soon(t), s.activity, s.name)
		require.NoError(t, err)
		defer rows.Close()
		settled := true
		for rows.Next() {
			var ours bool
			var process uint32
			require.NoError(t, rows.Scan(&ours, &process))
			settled = settled && s.mayBeThere(ours, process)
		}
		require.NoError(t, rows.Err())
		return settled
	})
}

// mayBeThere reports whether a session is not abandoned: it belongs to this process and is in use,
// or it works for another client.
func (s *sessions) mayBeThere(ours bool, process uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ours {
		return s.held[process]
	}
	return !s.gone[process]
}

// look records, before the driver returns, whether a connection is still open.
func (s *sessions) look(conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if process := conn.PgConn().PID(); conn.IsClosed() {
		delete(s.held, process)
		s.gone[process] = true
	} else {
		s.held[process] = true
		delete(s.gone, process)
	}
}

// TraceConnectStart implements pgx.ConnectTracer.
func (s *sessions) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

// TraceConnectEnd implements pgx.ConnectTracer.
func (s *sessions) TraceConnectEnd(_ context.Context, data pgx.TraceConnectEndData) {
	if data.Err == nil {
		s.look(data.Conn)
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *sessions) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *sessions) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	s.look(conn)
}

// TracePrepareStart implements pgx.PrepareTracer.
func (s *sessions) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return ctx
}

// TracePrepareEnd implements pgx.PrepareTracer.
func (s *sessions) TracePrepareEnd(_ context.Context, conn *pgx.Conn, _ pgx.TracePrepareEndData) {
	s.look(conn)
}
