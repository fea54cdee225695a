package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
)

const (
	answersFor = 8 * time.Second  // in which a server must answer
	dropFor    = 60 * time.Second // in which all databases must be dropped
	dropSoon   = 20 * time.Second // the same after an interruption
	retryEvery = 100 * time.Millisecond
)

// databaseName is what -name may be: databases are named after it.
var databaseName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,59}$`)

// database is one database of a run, with the options in which they differ.
type database struct {
	suffix    string
	collation string
	versions  bool // READ_COMMITTED_SNAPSHOT
	optimized bool // OPTIMIZED_LOCKING, from 2025 on
	slots     int  // of the queue orders; 0: a plain queue

	name string
	dsn  string
	db   *sql.DB
}

// server is the server that is asked.
type server struct {
	address *url.URL
	admin   *sql.DB
	prefix  string // of the names of all databases and sessions that are created
	tests   string // the prefix of the names of databases of the tests of this run
	version string // such as "Microsoft SQL Server 2022 (RTM-CU14)"
	major   int

	databases []*database
	others    []string // the databases that were there before
	missing   []string // of rights
	logins    []string // that are created
	recording bool     // the session of deadlocks might exist
}

// rights are those that a login should have, and the parts that need them. Only the first one must be there.
var rights = []struct{ name, parts string }{
	{"CREATE ANY DATABASE", "all"},
	{"VIEW SERVER STATE", "locks; facts and load in part"},
	{"ALTER ANY EVENT SESSION", "deadlocks"},
	{"ALTER ANY LOGIN", "programs in part"},
}

// connect asks a server what it is. It returns an error, and has created nothing, if this command cannot run there.
func connect(ctx context.Context, dsn, prefix string) (*server, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "sqlserver" || u.Host == "" {
		return nil, errors.New("-dsn: want sqlserver://user:password@host:port?database=master")
	}
	s := &server{address: u, prefix: prefix, tests: "chanq_test_" + strings.ToLower(rand.Text()[:12])}
	if s.admin, err = open(dsn); err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	if err := s.examine(ctx); err != nil {
		return nil, errors.Join(err, s.admin.Close())
	}
	return s, nil
}

func (s *server) host() string { return s.address.Host }

// emulated reports whether the server is package mssqltest.
func (s *server) emulated() bool { return strings.Contains(s.version, "the emulator of chanq") }

// examine refuses what is no SQL Server, is too old, lacks rights, or has databases of these names.
func (s *server) examine(ctx context.Context) error {
	if err := s.greet(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answersFor)
	defer cancel()
	var text, number string
	err := s.admin.QueryRowContext(ctx, `SELECT @@VERSION, CONVERT(nvarchar(128), SERVERPROPERTY('ProductVersion'))`).Scan(&text, &number)
	if err != nil {
		return fmt.Errorf("%s: %w", s.host(), err)
	}
	s.version, _, _ = strings.Cut(text, "\n")
	s.version = strings.TrimSpace(strings.TrimSuffix(s.version, "(X64) "))
	var build int
	if _, err := fmt.Sscanf(number, "%d.%d.%d", &s.major, new(int), &build); err != nil || !strings.HasPrefix(text, "Microsoft SQL Server") {
		return fmt.Errorf("%s is another product, not a SQL Server that is installed: %q, version %q", s.host(), s.version, number)
	}
	if s.major < 13 || s.major == 13 && build < 4001 {
		return fmt.Errorf("%s is SQL Server %s: chanq needs 2016 SP1 (13.0.4001) or later", s.host(), number)
	}
	for _, right := range rights {
		var has sql.NullInt64
		if err := s.admin.QueryRowContext(ctx, `SELECT HAS_PERMS_BY_NAME(NULL, NULL, @p1)`, right.name).Scan(&has); err != nil {
			return fmt.Errorf("%s: %w", s.host(), err)
		}
		if has.Valid && has.Int64 == 0 { // NULL is of a server that does not know
			s.missing = append(s.missing, right.name)
		}
	}
	if slices.Contains(s.missing, rights[0].name) {
		return fmt.Errorf("the login %q must be able to create databases: use sa, or GRANT it %s (-h lists the rights of each part)", s.address.User.Username(), strings.Join(s.missing, ", "))
	}
	if s.others, err = s.names(ctx); err != nil {
		return err
	}
	for _, name := range s.others {
		if strings.HasPrefix(strings.ToLower(name), s.prefix) {
			return fmt.Errorf("the database %s exists: drop it if a former run has left it, or choose another -name", name)
		}
	}
	return nil
}

// greet waits until the server has answered the login, for a limited time.
func (s *server) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answersFor)
	defer cancel()
	connector, err := mssql.NewConnector(s.address.String())
	if err != nil {
		return fmt.Errorf("-dsn: %w", err)
	}
	dialed := &dialer{ctx: ctx}
	connector.Dialer = dialed
	db := sql.OpenDB(connector)
	defer db.Close()
	err = db.PingContext(ctx)
	var refused mssql.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && (refused.Number == 18456 || refused.Number == 4060):
		return fmt.Errorf("cannot log in to the database %q as %q: the password is wrong, or the database does not exist or is closed to this login; use database=master (%s, error %d)",
			s.address.Query().Get("database"), s.address.User.Username(), refused.Message, refused.Number)
	case errors.As(err, &refused):
		return fmt.Errorf("%s refuses the login %q: %s (error %d)", s.host(), s.address.User.Username(), refused.Message, refused.Number)
	case !dialed.connected:
		return fmt.Errorf("nothing answers at %s: %w", s.host(), err)
	case ctx.Err() != nil:
		return fmt.Errorf("what listens at %s has not answered within %v: %w", s.host(), answersFor, err)
	case errors.Is(err, io.EOF), strings.Contains(err.Error(), "EOF"), strings.Contains(err.Error(), "reset"), strings.Contains(err.Error(), "TDS"), strings.Contains(err.Error(), "packet"):
		return fmt.Errorf("what listens at %s does not speak the protocol of SQL Server, so it is another product: %w", s.host(), err)
	}
	return fmt.Errorf("%s: %w", s.host(), err)
}

// dialer closes its connections when its context ends, since the driver waits without a limit for the greeting of a server. It is used by one
// goroutine.
type dialer struct {
	ctx       context.Context
	connected bool
}

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var by net.Dialer
	conn, err := by.DialContext(ctx, network, address)
	if err == nil {
		d.connected = true
		context.AfterFunc(d.ctx, func() { conn.Close() })
	}
	return conn, err
}

func open(dsn string) (*sql.DB, error) {
	connector, err := mssql.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// names returns the names of all databases.
func (s *server) names(ctx context.Context) (names []string, err error) {
	rows, err := s.admin.QueryContext(ctx, `SELECT name FROM sys.databases`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// createAll creates the databases of a run. Together they have both settings of row versions, a binary collation and one in which I and i are
// different letters, and both kinds of queues.
func (h *hour) createAll(ctx context.Context) error {
	list := []*database{
		{suffix: "unversioned", collation: "Turkish_100_CI_AS"},
		{suffix: "versions", collation: "Latin1_General_100_BIN2", versions: true},
		{suffix: "ordered", versions: true, slots: 16},
	}
	if h.major >= 17 {
		list = append(list, &database{suffix: "optimized", versions: true, optimized: true})
	}
	for _, d := range list {
		if err := h.create(ctx, d); err != nil {
			return err
		}
		h.report.say("created the database %s", d.name)
	}
	return nil
}

// create creates a database, and opens it. It is dropped by close, from before it is created.
func (s *server) create(ctx context.Context, d *database) error {
	d.name = s.prefix + "_" + d.suffix
	u := *s.address
	query := u.Query()
	query.Set("database", d.name)
	u.RawQuery = query.Encode()
	d.dsn = u.String()
	s.databases = append(s.databases, d)
	text := "CREATE DATABASE [" + d.name + "]"
	if d.collation != "" {
		text += " COLLATE " + d.collation
	}
	statements := []string{text, "ALTER DATABASE [" + d.name + "] SET ALLOW_SNAPSHOT_ISOLATION ON"}
	if d.versions {
		statements = append(statements, "ALTER DATABASE ["+d.name+"] SET READ_COMMITTED_SNAPSHOT ON")
	}
	if d.optimized {
		statements = append(statements, "ALTER DATABASE ["+d.name+"] SET ACCELERATED_DATABASE_RECOVERY = ON", "ALTER DATABASE ["+d.name+"] SET OPTIMIZED_LOCKING = ON")
	}
	for _, text := range statements {
		if err := s.alone(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	var err error
	d.db, err = open(d.dsn)
	return err
}

// alone executes a statement that needs a database for itself, and repeats it while another session has that database: 1807 is the database
// model, 924 and 3702 the database that is dropped, 15434 a login whose last connection has just ended.
func (s *server) alone(ctx context.Context, text string) error {
	for {
		_, err := s.admin.ExecContext(ctx, text)
		var e mssql.Error
		if !errors.As(err, &e) || !slices.Contains([]int32{924, 1807, 3702, 15434}, e.Number) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryEvery):
		}
	}
}

// close drops what this run has created: also the databases of tests that were interrupted. It does not end with ctx.
func (s *server) close(ctx context.Context) error {
	limit := dropFor
	if ctx.Err() != nil {
		limit = dropSoon
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	var errs []error
	if s.recording {
		errs = append(errs, s.stopDeadlocks(ctx))
	}
	for _, d := range s.databases {
		if d.db != nil {
			errs = append(errs, d.db.Close())
		}
	}
	now, err := s.names(ctx)
	errs = append(errs, err)
	for _, name := range now {
		if slices.Contains(s.others, name) || !strings.HasPrefix(name, s.prefix+"_") && !strings.HasPrefix(name, s.tests+"_") {
			continue
		}
		// From a connection inside the database, which is then its only one.
		err := s.alone(ctx, "USE ["+name+"]; ALTER DATABASE ["+name+"] SET SINGLE_USER WITH ROLLBACK IMMEDIATE; USE master; DROP DATABASE ["+name+"]")
		if err != nil {
			errs = append(errs, fmt.Errorf("the database %s is left: %w", name, err))
		}
	}
	for _, login := range s.logins {
		if err := s.alone(ctx, "DROP LOGIN ["+login+"]"); err != nil && !unsupported(err) { // the emulator forgets it
			errs = append(errs, fmt.Errorf("the login %s is left: %w", login, err))
		}
	}
	return errors.Join(append(errs, s.admin.Close())...)
}

// checkout returns the folder of the repository, in which this command runs.
func checkout() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		text, failed := os.ReadFile(filepath.Join(dir, "go.mod"))
		if failed == nil && strings.HasPrefix(string(text), "module github.com/chanq/chanq\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run it in a checkout of github.com/chanq/chanq: it runs the tests, and reads the statements")
		}
	}
	return "", err
}
