// Package mssqltest starts an emulator of SQL Server inside a test: go-mssqldb connects to it over a socket, and it
// runs chanq's own T-SQL.
//
// It is not a product or a part of one: nothing outside of tests imports it. It exists because SQL Server is the first
// engine of chanq and tests must run on any developer's machine without it. It implements the rules that chanq relies
// on, as documented by Microsoft: locks on rows, key ranges and tables, their compatibility, queues and escalation;
// isolation levels and row versions; hints; which indexes a hint admits; deadlocks and their victims; what an error
// rolls back; limits and error numbers; and the wire, with attentions, broken connections and failovers at a moment
// that a test chooses. docs/internals/sqlserver-inside.md lists the rules, each with its test.
//
// Its limits: it has no optimizer (a plan is determined by the hints and the order of the text), ghost records only if
// a test requests them, no pages (and therefore neither page locks nor latches), no disk (a commit cannot be lost,
// nothing is slow), no plan cache (it counts pairs of text and declaration), one database (master is an alias for it),
// one collation, and of T-SQL only the parts that chanq, the five articles on which it is based and the drivers'
// greetings use. Everything else is refused with error 40517 or the server's own number, and never ignored. It proves
// nothing about speed or about undocumented behaviour: what must hold on a real server is also tested there
// (CHANQ_TEST_SQLSERVER).
//
// Its packages: tds is the wire protocol, engine runs the statements, lock is the lock manager, sqltype has the shared
// types; this package has Start and the faults.
package mssqltest

import (
	"database/sql"
	"net"
	"net/url"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/engine"
	"github.com/chanq/chanq/mssqltest/lock"
	"github.com/chanq/chanq/mssqltest/memnet"
	"github.com/chanq/chanq/mssqltest/tds"
)

// Options configures Start. The zero value is an empty database with a stopped clock, with READ_COMMITTED_SNAPSHOT off.
type Options struct {
	// Clock is the server's clock: engine.RealClock{} if time must pass in a test. Default: a ManualClock at noon of
	// 2026-01-01.
	Clock engine.Clock
	// Database is the name of the only database. Default: "chanq".
	Database string
	// User and Password are the only login at the start. Default: "sa" and a password of this package.
	User, Password string
	// ReadCommittedSnapshot and AllowSnapshotIsolation are the database's options, both on in Azure SQL.
	ReadCommittedSnapshot, AllowSnapshotIsolation bool
	// Version is the product's version in SERVERPROPERTY: see engine.Options.
	Version string
	// KeepGhosts keeps deleted entries in place until Engine.CleanGhosts: see engine.Options.
	KeepGhosts bool
	// OnLock is called after each lock that a session gets: see engine.Options.
	OnLock func(lock.Info)
	// OnRelease is called between two locks that the end of a transaction releases: see engine.Options.
	OnRelease func()
	// Wire is passed to the TDS server: encryption and instruments. Its Before and After are those of Inject.
	Wire tds.Options
	// InMemory serves on a listener of package memnet instead of the loopback interface: a client needs memnet.Dialer.
	InMemory bool
	// Query is added to the DSN, such as "packet size".
	Query url.Values
}

// Server is a running emulator.
type Server struct {
	engine *engine.Engine
	wire   *tds.Server
	faults *faults
	manual *engine.ManualClock
	dsn    string
	db     *sql.DB
}

// Start serves until the test has ended.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := &Server{}
	if o.Clock == nil {
		s.manual = engine.NewManualClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
		o.Clock = s.manual
	} else if m, ok := o.Clock.(*engine.ManualClock); ok {
		s.manual = m
	}
	if o.Database == "" {
		o.Database = "chanq"
	}
	if o.User == "" {
		o.User, o.Password = "sa", "emulator-password"
	}
	s.engine = engine.New(engine.Options{
		Database:               o.Database,
		Logins:                 map[string]string{o.User: o.Password},
		Clock:                  o.Clock,
		ReadCommittedSnapshot:  o.ReadCommittedSnapshot,
		AllowSnapshotIsolation: o.AllowSnapshotIsolation,
		Version:                o.Version,
		KeepGhosts:             o.KeepGhosts,
		OnLock:                 o.OnLock,
		OnRelease:              o.OnRelease,
	})
	ln, err := listen(o.InMemory)
	require.NoError(t, err)
	s.faults = newFaults(s.engine)
	require.True(t, o.Wire.Before == nil && o.Wire.After == nil, "Server.Inject makes the faults")
	o.Wire.Before, o.Wire.After = s.faults.at(Received), s.faults.at(Answered)
	s.wire = tds.Serve(ln, s.engine, o.Wire)
	query := url.Values{"database": {o.Database}, "encrypt": {"disable"}}
	if o.Wire.TLS != nil {
		query.Set("encrypt", "true")
		query.Set("TrustServerCertificate", "true")
	}
	for k, v := range o.Query {
		query[k] = v
	}
	dsn := url.URL{Scheme: "sqlserver", User: url.UserPassword(o.User, o.Password), Host: ln.Addr().String(), RawQuery: query.Encode()}
	s.dsn = dsn.String()
	connector, err := mssql.NewConnector(s.dsn)
	require.NoError(t, err)
	if o.InMemory {
		connector.Dialer = memnet.Dialer{}
	}
	s.db = sql.OpenDB(connector)
	t.Cleanup(func() {
		_ = s.db.Close()
		_ = s.wire.Close()
	})
	return s
}

func listen(inMemory bool) (net.Listener, error) {
	if inMemory {
		return memnet.Listen(), nil
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// DSN returns the DSN with which go-mssqldb connects as the user of Options.
func (s *Server) DSN() string { return s.dsn }

// DB returns a connection pool for the user of Options, closed with the test.
func (s *Server) DB() *sql.DB { return s.db }

// Engine returns the engine, with its instruments and hooks.
func (s *Server) Engine() *engine.Engine { return s.engine }

// Wire returns the TDS server, for faults of connections.
func (s *Server) Wire() *tds.Server { return s.wire }

// Clock returns the manual clock, or nil if Options have another.
func (s *Server) Clock() *engine.ManualClock { return s.manual }
