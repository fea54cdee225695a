package histories

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/testdb"
)

// sessions knows which sessions of a PostgreSQL server this process has and has not
// given up. A statement whose caller gave up may still be applied: the server goes on
// until it notices, and the end of its session is all that says it will not. How many
// connections a *sql.DB has open does not say it, for that counts one that is only being
// made, which the server has not, and one that was given up and is not closed yet.
type sessions struct {
	follows bool // whether there is such a server: elsewhere no statement outlives its caller's context

	mu   sync.Mutex
	held map[uint32]bool // by the server's process
}

// connector opens an address, and follows its connections where that is needed.
func (s *sessions) connector(t testing.TB, e testdb.Engine, address string) driver.Connector {
	if e.Dialect.Name() != "postgres" {
		connector, err := e.Connect(address)
		require.NoError(t, err)
		return connector
	}
	s.follows, s.held = true, map[uint32]bool{}
	config, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	config.Tracer = s
	return stdlib.GetConnector(*config)
}

// settle waits until the server has ended the sessions whose callers gave up.
func (s *sessions) settle(t testdb.T, db *sql.DB) {
	if !s.follows {
		return
	}
	testdb.Eventually(t, "the server has ended the sessions that were given up", func() bool {
		rows, err := db.QueryContext(testdb.Soon(t), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`)
		require.NoError(t, err)
		defer rows.Close()
		settled := true
		for rows.Next() {
			var process uint32
			require.NoError(t, rows.Scan(&process))
			settled = settled && s.holds(process)
		}
		require.NoError(t, rows.Err())
		return settled
	})
}

func (s *sessions) holds(process uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[process]
}

// look notes, before the driver returns, whether a connection goes on.
func (s *sessions) look(conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if process := conn.PgConn().PID(); conn.IsClosed() {
		delete(s.held, process)
	} else {
		s.held[process] = true
	}
}

// TraceConnectStart is of pgx.ConnectTracer.
func (s *sessions) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

// TraceConnectEnd is of pgx.ConnectTracer.
func (s *sessions) TraceConnectEnd(_ context.Context, data pgx.TraceConnectEndData) {
	if data.Err == nil {
		s.look(data.Conn)
	}
}

// TraceQueryStart is of pgx.QueryTracer.
func (s *sessions) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd is of pgx.QueryTracer.
func (s *sessions) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	s.look(conn)
}

// TracePrepareStart is of pgx.PrepareTracer.
func (s *sessions) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return ctx
}

// TracePrepareEnd is of pgx.PrepareTracer.
func (s *sessions) TracePrepareEnd(_ context.Context, conn *pgx.Conn, _ pgx.TracePrepareEndData) {
	s.look(conn)
}
