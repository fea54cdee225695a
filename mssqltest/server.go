package mssqltest

import (
	"crypto/tls"
	"database/sql"
	"net"
	"net/url"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/chanq/chanq/mssqltest/internal/engine"
	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/tds"
	"github.com/chanq/chanq/mssqltest/memnet"
)

// Options configures Start and Serve. The zero value is an empty database with READ_COMMITTED_SNAPSHOT off, as SQL
// Server creates one outside of Azure.
type Options struct {
	// Clock is the clock of the server. Default: the machine's clock. Stopped returns one that your test moves.
	Clock Clock
	// Database is the name of the only database. Default: "test".
	Database string
	// User and Password are the only login at the start, a dbo. Default: "sa" and a password of this package.
	User, Password string
	// ReadCommittedSnapshot and AllowSnapshotIsolation are the options of the database. Both are on in Azure SQL.
	ReadCommittedSnapshot, AllowSnapshotIsolation bool
	// Version is the version of the product in SERVERPROPERTY, such as "13.0.4001.0". Default: a version of 2022.
	Version string
	// TLS has a certificate, with which clients may encrypt. Default: none, and clients that insist on it are refused.
	TLS *tls.Config
	// InMemory makes Start serve on a listener of package memnet instead of the loopback interface, and DB connect to
	// it. This works in a bubble of testing/synctest.
	InMemory bool
	// Query is added to the DSN, such as "packet size".
	Query url.Values

	// OnRequest is called with each request of a client just before the end of its answer is sent.
	OnRequest func(Request)
	// OnLock is called after each lock that a session gets, by the goroutine of that session. It must not run a statement.
	OnLock func(Lock)
	// OnRelease is called between two locks that the end of a transaction releases: other sessions can run meanwhile.
	// Default: all locks are released at one moment.
	OnRelease func()
	// KeepGhosts keeps deleted rows and entries in their places until Server.CleanGhosts: reads walk over them. Default:
	// they are removed when no snapshot needs them.
	KeepGhosts bool
}

// Server is a running server. Its methods are safe for concurrent use.
type Server struct {
	engine *engine.Engine
	wire   *tds.Server
	faults *faults
	manual *ManualClock
	dsn    string
	db     *sql.DB
}

// DB returns an empty database that lasts as long as the test: Start(t, Options{InMemory: true}).DB().
func DB(t testing.TB) *sql.DB {
	t.Helper()
	return Start(t, Options{InMemory: true}).DB()
}

// Start serves until the test has ended: on the loopback interface or, with Options.InMemory, inside the process.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	ln, err := listen(o.InMemory)
	if err != nil {
		t.Fatalf("mssqltest: %v", err)
	}
	s, err := Serve(ln, o)
	if err != nil {
		t.Fatalf("mssqltest: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func listen(inMemory bool) (net.Listener, error) {
	if inMemory {
		return memnet.Listen(), nil
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// Serve serves on ln, which the server then owns, until Close. It is for programs that are not tests.
func Serve(ln net.Listener, o Options) (*Server, error) {
	s := &Server{}
	s.manual, _ = o.Clock.(*ManualClock)
	if o.User == "" {
		o.User, o.Password = "sa", "emulator-password"
	}
	if o.Database == "" {
		o.Database = "test"
	}
	if err := s.connect(ln, o); err != nil {
		return nil, err
	}
	s.engine = engine.New(engine.Options{
		Database:               o.Database,
		Logins:                 map[string]string{o.User: o.Password},
		Clock:                  o.Clock,
		ReadCommittedSnapshot:  o.ReadCommittedSnapshot,
		AllowSnapshotIsolation: o.AllowSnapshotIsolation,
		Version:                o.Version,
		KeepGhosts:             o.KeepGhosts,
		OnLock:                 s.onLock(o.OnLock),
		OnRelease:              o.OnRelease,
	})
	s.faults = newFaults(s.engine)
	s.wire = tds.Serve(ln, s.engine, tds.Options{
		TLS: o.TLS, Before: s.faults.at(Received), After: s.faults.at(Answered), Observe: observe(o.OnRequest),
	})
	return s, nil
}

// connect sets the DSN and the pool. The pool connects when it is used.
func (s *Server) connect(ln net.Listener, o Options) error {
	query := url.Values{"database": {o.Database}, "encrypt": {"disable"}}
	if o.TLS != nil {
		query.Set("encrypt", "true")
		query.Set("TrustServerCertificate", "true")
	}
	for k, v := range o.Query {
		query[k] = v
	}
	dsn := url.URL{
		Scheme: "sqlserver", User: url.UserPassword(o.User, o.Password), Host: ln.Addr().String(), RawQuery: query.Encode(),
	}
	s.dsn = dsn.String()
	connector, err := mssql.NewConnector(s.dsn)
	if err != nil {
		return err
	}
	if memnet.Has(ln.Addr().String()) {
		connector.Dialer = memnet.Dialer{}
	}
	s.db = sql.OpenDB(connector)
	return nil
}

func (s *Server) onLock(call func(Lock)) func(lock.Info) {
	if call == nil {
		return nil
	}
	return func(i lock.Info) { call(s.lock(i)) }
}

func observe(call func(Request)) func(*tds.Conn, tds.Exchange) {
	if call == nil {
		return nil
	}
	return func(_ *tds.Conn, e tds.Exchange) {
		for _, r := range e.Requests {
			call(requestOf(r))
		}
	}
}

// DB returns a pool of connections of the user of Options, which Close closes.
func (s *Server) DB() *sql.DB { return s.db }

// DSN returns the DSN with which go-mssqldb connects as the user of Options. A server in memory needs memnet.Dialer, too.
func (s *Server) DSN() string { return s.dsn }

// Addr returns the address to which clients connect, as host:port.
func (s *Server) Addr() string { return s.wire.Addr().String() }

// Clock returns the ManualClock of Options, or nil if Options have another clock.
func (s *Server) Clock() *ManualClock { return s.manual }

// Close ends all sessions and returns when they have ended. Start calls it.
func (s *Server) Close() error {
	_ = s.db.Close()
	return s.wire.Close()
}
