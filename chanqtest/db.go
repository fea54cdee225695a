package chanqtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/embedded/goclock"
)

// DB returns an empty SQLite database in memory, which is closed when the test ends. In a bubble of testing/synctest its clock is the
// bubble's. The test fails if it ends while a producer, a consumer, a transaction or rows are open.
func DB(t testing.TB) *sql.DB {
	t.Helper()
	goclock.Use()
	c, err := embedded.Connector(":memory:")
	if err != nil {
		t.Fatalf("chanqtest: DB: %v", err)
	}
	return open(t, c, fmt.Sprintf("SQLite database %d in memory", databases.Add(1)), "sqlite").db
}

// PostgresVariable is the environment variable for Postgres: the connection string of a role that may create databases.
const PostgresVariable = "CHANQ_TEST_POSTGRES"

// databases numbers the databases of this process.
var databases atomic.Int64

// Postgres returns an empty database on the server of PostgresVariable, which is dropped when the test ends. Without the variable the test
// is skipped. The clock is the server's, so it works only outside of bubbles: see Travel. Drain knows the queues of the default schema.
func Postgres(t testing.TB) *sql.DB {
	t.Helper()
	dsn := os.Getenv(PostgresVariable)
	if dsn == "" {
		t.Skipf("chanqtest: Postgres: %s is not set: set it to the connection string of a role that may create databases", PostgresVariable)
	}
	if inBubble() {
		t.Fatal("chanqtest: Postgres: a server does not have the clock of a bubble: use DB, or leave out synctest.Test and use Travel")
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("chanqtest: Postgres: %s: %v", PostgresVariable, err)
	}
	server := stdlib.OpenDB(*config.Copy())
	config.Database = fmt.Sprintf("chanqtest_%d_%d", os.Getpid(), databases.Add(1))
	if _, err := server.Exec("CREATE DATABASE " + config.Database); err != nil {
		server.Close()
		t.Fatalf("chanqtest: Postgres: create a database on %s: %v", config.Host, err)
	}
	t.Cleanup(func() {
		defer server.Close()
		if _, err := server.Exec("DROP DATABASE " + config.Database + " WITH (FORCE)"); err != nil {
			t.Errorf("chanqtest: Postgres: drop the database: %v", err)
		}
	})
	return open(t, stdlib.GetConnector(*config), "the PostgreSQL database "+config.Database, "postgres").db
}

// Open opens another database for Sent, Work, Drain and Crash, for example that of package mssqltest. It is closed when the test ends. Travel
// refuses it, since chanqtest has not created it.
func Open(t testing.TB, c driver.Connector) *sql.DB {
	t.Helper()
	return open(t, c, fmt.Sprintf("database %d, of %T", databases.Add(1), c.Driver()), "").db
}

// database is a *sql.DB that this package has opened.
type database struct {
	name    string
	test    string  // the name of its test
	created string  // its engine, if this package has created it
	db      *sql.DB // of the test
	own     *sql.DB // for the reads of this package, which are no statements of the program

	mu      sync.Mutex
	crash   func(text string) bool // decides whether the program dies after a statement; nil: it does not
	process int                    // the number of times that it has died: earlier connections are broken
	working []func()               // end the parts of calls of Drain and Work, with which the program dies
	worked  bool                   // since crash was set such a call has returned: what follows is assertions of the test
	dead    error                  // all statements return it
}

// opened has the open databases by the names of their tests.
var opened = struct {
	sync.Mutex
	by map[string][]*database
}{by: map[string][]*database{}}

func open(t testing.TB, c driver.Connector, name, created string) *database {
	t.Helper()
	d := &database{name: name, test: t.Name(), created: created}
	d.db, d.own = sql.OpenDB(&connector{c, d}), sql.OpenDB(unowned{c})
	d.db.SetMaxIdleConns(4)
	if err := d.own.Ping(); err != nil {
		t.Fatalf("chanqtest: open %s: %v", name, err)
	}
	opened.Lock()
	defer opened.Unlock()
	opened.by[t.Name()] = append(opened.by[t.Name()], d)
	t.Cleanup(func() { d.close(t) })
	return d
}

// close closes a database at the end of its test, or of the iteration of Crashes that has used it.
func (d *database) close(t testing.TB) {
	opened.Lock()
	i := slices.Index(opened.by[d.test], d)
	if i >= 0 {
		if opened.by[d.test] = slices.Delete(opened.by[d.test], i, i+1); len(opened.by[d.test]) == 0 {
			delete(opened.by, d.test)
		}
	}
	opened.Unlock()
	if i < 0 {
		return // it is closed
	}
	// A context that has ended rolls its transaction back a moment later.
	for end := time.Now().Add(2 * time.Second); d.db.Stats().InUse > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := d.db.Stats().InUse; n > 0 && !t.Failed() {
		t.Errorf("chanqtest: the test has ended, and %d connections of %s are in use: close its producers, shut its consumers down, end its "+
			"transactions and close its rows, or run it by Drain", n, d.name)
	}
	_ = d.own.Close()
	if err := d.db.Close(); err != nil && !t.Failed() {
		t.Errorf("chanqtest: close %s: %v", d.name, err)
	}
}

// databasesOf returns the databases of a test and of the tests around it.
func databasesOf(t testing.TB) (list []*database) {
	opened.Lock()
	defer opened.Unlock()
	for name := t.Name(); ; {
		list = append(list, opened.by[name]...)
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return list
		}
		name = name[:i]
	}
}

// databaseOf returns the database of a *sql.DB, or nil.
func databaseOf(db *sql.DB) *database {
	opened.Lock()
	defer opened.Unlock()
	for _, list := range opened.by {
		for _, d := range list {
			if d.db == db {
				return d
			}
		}
	}
	return nil
}

// databaseWith returns the database of a queue.
func databaseWith(t testing.TB, op string, n chanq.Names) *database {
	t.Helper()
	var found []*database
	all := databasesOf(t)
	for _, d := range all {
		names, err := chanqadmin.Queues(context.Background(), d.own, chanq.Config{Dialect: n.Dialect, Schema: n.Schema})
		for _, name := range names {
			if err == nil && name == n.Queue {
				found = append(found, d)
			}
		}
	}
	switch {
	case len(found) == 1:
	case len(all) == 0:
		t.Fatalf("chanqtest: %s: this test has no database of chanqtest: open the queue %q on the result of chanqtest.DB, Postgres or Open",
			op, n.Queue)
	case len(found) == 0:
		t.Fatalf("chanqtest: %s: none of the %d databases of this test has the queue %q: open it on one of them", op, len(all), n.Queue)
	default:
		t.Fatalf("chanqtest: %s: %d databases of this test have a queue %q: give the queues different names", op, len(found), n.Queue)
	}
	return found[0]
}

// adminOf opens a queue for this package.
func (d *database) adminOf(t testing.TB, op, queue, schema string) *chanqadmin.Queue {
	t.Helper()
	q, err := chanqadmin.Open(context.Background(), d.own, queue, chanq.Config{Schema: schema, Durability: chanq.DurabilityAsIs})
	if err != nil {
		t.Fatalf("chanqtest: %s: %v", op, err)
	}
	return q
}

// started is before the time of any bubble's process, and after that of any bubble, whose clock begins in 2000.
var started = time.Now()

func inBubble() bool { return time.Now().Before(started) }

// unowned is a connector whose *sql.DB does not close the database.
type unowned struct{ inner driver.Connector }

func (u unowned) Connect(ctx context.Context) (driver.Conn, error) { return u.inner.Connect(ctx) }
func (u unowned) Driver() driver.Driver                            { return u.inner.Driver() }
