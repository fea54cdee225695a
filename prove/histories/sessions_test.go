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

// sessions knows which sessions of a PostgreSQL server this process has and has not
// given up. A statement whose caller gave up may still be applied: the server goes on
// until it notices, and the end of its session is all that says it will not. How many
// connections a *sql.DB has open does not say it, for that counts one that is only being
// made, which the server has not, and one that was given up and is not closed yet.
//
// On Citus a session of another node works for it, and may go on for longer.
type sessions struct {
	activity string // lists the server's processes; "" where no statement outlives its caller's context
	name     string // of this process, as its sessions tell the server

	mu         sync.Mutex
	held, gone map[uint32]bool // by the server's process
	faults     *faultdb.Connector
}

const (
	// Whether it is one of ours, by its name, and its process.
	postgresActivity = `SELECT true, pid FROM pg_stat_activity WHERE application_name = $1`
	// The other sessions are those that work for one of any client, and that one's process.
	citusActivity = `SELECT application_name = $1, CASE WHEN application_name = $1 THEN pid ELSE global_pid % 10000000000 END
FROM citus_stat_activity WHERE application_name = $1 OR is_worker_query`
)

// connector opens an address, and follows its connections where that is needed.
func (s *sessions) connector(t testing.TB, e testdb.Engine, address string) driver.Connector {
	if e.ConnectWith == nil {
		connector, err := e.Connect(address)
		require.NoError(t, err)
		s.faults = faultdb.New(connector)
		return s.faults
	}
	id := chanq.NewID()
	s.activity, s.name = postgresActivity, fmt.Sprintf("chanq histories %x", id[8:]) // 63 bytes at most
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

// settle waits until the server has ended the sessions whose callers gave up.
func (s *sessions) settle(t testdb.T, db *sql.DB) {
	if s.activity == "" {
		return
	}
	testdb.Eventually(t, "the server has ended the sessions that were given up", func() bool {
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

// mayBeThere reports that a session is no leftover: one of ours that is in use, or one that works
// for somebody else.
func (s *sessions) mayBeThere(ours bool, process uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ours {
		return s.held[process]
	}
	return !s.gone[process]
}

// look notes, before the driver returns, whether a connection goes on.
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
