// Package instance is the SQL Server emulator with several databases at one address, for tests of programs that create and drop databases.
// CREATE DATABASE, ALTER DATABASE and DROP DATABASE work if each is sent as the only statement of a batch (a drop as test databases do it).
// What the emulator does not have, such as plans, can be answered by a function.
package instance

import (
	"context"
	"errors"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/engine"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// Request is what a client sends to one database.
type Request struct {
	Session  int // the number of the connection
	Database string
	Text     string
	Batch    bool // a batch without parameters, not a call of sp_executesql
	Args     []any
}

// Answer is the answer to a request that the emulator does not see: rows of strings, int64 and nil, or an error.
type Answer struct {
	Rows    [][]any
	Number  int32 // of the error; 0: none
	Message string
}

// Instance is a running server. The database master exists from the beginning.
type Instance struct {
	dsn    string
	answer func(Request) (Answer, bool)

	mu        sync.Mutex // guards the following fields
	databases map[string]*engine.Engine
	sessions  int
	any       bool // password is admitted
}

// The login of DSN. Others are those of CREATE LOGIN.
const user, password = "sa", "emulator-password"

// Start serves on the loopback interface until the test has ended. The function answer, if it is not nil, sees each request before the
// emulator; it returns false for those that it does not answer.
func Start(t testing.TB, answer func(Request) (Answer, bool)) *Instance {
	t.Helper()
	i := &Instance{answer: answer, databases: map[string]*engine.Engine{}}
	i.databases["master"] = newEngine("master")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := tds.Serve(listener, i, tds.Options{})
	t.Cleanup(func() { _ = server.Close() })
	dsn := url.URL{Scheme: "sqlserver", User: url.UserPassword(user, password), Host: listener.Addr().String(), RawQuery: "database=master&encrypt=disable"}
	i.dsn = dsn.String()
	return i
}

func newEngine(database string) *engine.Engine {
	return engine.New(engine.Options{Database: database})
}

// DSN returns the DSN of the database master.
func (i *Instance) DSN() string { return i.dsn }

// AdmitAnyPassword admits the login of DSN with each password.
func (i *Instance) AdmitAnyPassword() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.any = true
}

// Databases returns the names of all databases, sorted.
func (i *Instance) Databases() (names []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name := range i.databases {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (i *Instance) database(name string) *engine.Engine {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.databases[strings.ToLower(name)]
}

// Login admits a connection to a database that exists.
func (i *Instance) Login(ctx context.Context, l tds.Login) (tds.Session, error) {
	i.mu.Lock()
	admitted := i.any || l.User != user || l.Password == password
	i.mu.Unlock()
	if !admitted {
		return nil, &sqltype.Error{Number: 18456, State: 1, Class: 14, Message: "Login failed for user '" + l.User + "'."}
	}
	if l.Database == "" {
		l.Database = "master"
	}
	e := i.database(l.Database)
	if e == nil {
		return nil, errors.Join(
			&sqltype.Error{Number: 4060, State: 1, Class: 11, Message: "Cannot open database \"" + l.Database + "\" requested by the login. The login failed."},
			&sqltype.Error{Number: 18456, State: 1, Class: 14, Message: "Login failed for user '" + l.User + "'."})
	}
	inner, err := e.Login(ctx, l)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sessions++
	return &session{Session: inner, instance: i, number: i.sessions, database: l.Database}, nil
}

// session is a connection to one database.
type session struct {
	tds.Session
	instance *Instance
	number   int
	database string
}

// Run answers a request of databases, or one that the function of Start answers. The emulator runs all others.
func (s *session) Run(ctx context.Context, r *tds.Request, w tds.Results) error {
	q := Request{Session: s.number, Database: s.database, Text: r.Text, Batch: r.Kind == tds.Batch}
	if r.Kind == tds.RPC && r.Proc == "sp_executesql" && len(r.Params) > 0 {
		q.Text, _ = r.Params[0].Value.(string)
		for _, p := range r.Params[min(2, len(r.Params)):] {
			q.Args = append(q.Args, p.Value)
		}
	}
	if s.instance.answer != nil && q.Text != "" {
		if a, ok := s.instance.answer(q); ok {
			return write(w, a)
		}
	}
	if q.Batch {
		if m := alter.FindStringSubmatch(q.Text); m != nil {
			return s.instance.change(ctx, r, w, m[1], m[2])
		}
		if a, ok := s.instance.manage(q.Text); ok {
			return write(w, a)
		}
	}
	return s.Session.Run(ctx, r, w)
}

var (
	create = regexp.MustCompile(`^CREATE DATABASE \[(\w+)\](?: COLLATE \w+)?$`)
	alter  = regexp.MustCompile(`^ALTER DATABASE \[(\w+)\] SET (\w+) (?:= )?(ON|OFF)$`)
	drop   = regexp.MustCompile(`^USE \[(\w+)\]; ALTER DATABASE \[\w+\] SET SINGLE_USER WITH ROLLBACK IMMEDIATE; USE master; DROP DATABASE \[\w+\]$`)
)

// manage runs a statement of databases.
func (i *Instance) manage(text string) (Answer, bool) {
	if text == "SELECT name FROM sys.databases" {
		var a Answer
		for _, name := range i.Databases() {
			a.Rows = append(a.Rows, []any{name})
		}
		return a, true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := create.FindStringSubmatch(text); m != nil {
		if i.databases[m[1]] != nil {
			return Answer{Number: 1801, Message: "Database '" + m[1] + "' already exists. Choose a different database name."}, true
		}
		i.databases[m[1]] = newEngine(m[1])
		return Answer{}, true
	}
	if m := drop.FindStringSubmatch(text); m != nil {
		if i.databases[m[1]] == nil {
			return Answer{Number: 911, Message: "Database '" + m[1] + "' does not exist. Make sure that the name is entered correctly."}, true
		}
		delete(i.databases, m[1])
		return Answer{}, true
	}
	return Answer{}, false
}

// change runs ALTER DATABASE on the database that it names. Locks are of rows, whatever OPTIMIZED_LOCKING is.
func (i *Instance) change(ctx context.Context, r *tds.Request, w tds.Results, database, option string) error {
	e := i.database(database)
	if e == nil {
		return write(w, Answer{Number: 5011, Message: "User does not have permission to alter database '" + database + "', the database does not exist, or the database is not in a state that allows access checks."})
	}
	if option == "ACCELERATED_DATABASE_RECOVERY" || option == "OPTIMIZED_LOCKING" {
		return write(w, Answer{})
	}
	s := e.NewSession(tds.Login{User: "sa", Database: database})
	defer s.Close()
	return s.Run(ctx, r, w)
}

// write writes an answer.
func write(w tds.Results, a Answer) error {
	if a.Number != 0 {
		return w.Message(&sqltype.Error{Number: a.Number, State: 1, Class: 16, Message: a.Message})
	}
	if a.Rows == nil {
		return w.Done(tds.End{})
	}
	columns := make([]sqltype.Column, len(a.Rows[0]))
	for i, v := range a.Rows[0] {
		columns[i] = sqltype.Column{Type: sqltype.Type{Kind: sqltype.NVarChar, Size: sqltype.Max}, Nullable: true}
		if _, number := v.(int64); number {
			columns[i].Type = sqltype.Type{Kind: sqltype.BigInt}
		}
	}
	if err := w.Columns(columns); err != nil {
		return err
	}
	for _, row := range a.Rows {
		values := make([]sqltype.Value, len(row))
		for i, v := range row {
			values[i] = v
		}
		if err := w.Row(values); err != nil {
			return err
		}
	}
	return w.Done(tds.End{Command: tds.Select, Rows: uint64(len(a.Rows)), Counted: true})
}
