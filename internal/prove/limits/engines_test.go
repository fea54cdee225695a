package limits_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/internal/testdb/mssqltest"
	"github.com/chanq/chanq/internal/testdb/mssqltest/engine"
	"github.com/chanq/chanq/internal/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come: long enough for a
// loaded machine, and never spent where the code is right.
const patience = time.Minute

// dbEngine is a kind of database. create makes an empty one and returns what
// connects to it.
type dbEngine struct {
	name    string
	dialect sqlbatch.Dialect
	create  func(*testing.T) driver.Connector
}

var (
	onSQLite = dbEngine{"SQLite", sqlite.Dialect, func(t *testing.T) driver.Connector {
		c, err := embedded.Connector(filepath.Join(t.TempDir(), "queue.db"))
		require.NoError(t, err)
		return c
	}}
	onStandIn = dbEngine{"SQL Server stand-in", sqlserver.Dialect, func(t *testing.T) driver.Connector {
		return connectStandIn(t, engine.RealClock{})
	}}
	onPostgres = dbEngine{"PostgreSQL", postgres.Dialect, func(t *testing.T) driver.Connector {
		c, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(pgtest.DSN(t))
		require.NoError(t, err)
		return c
	}}
	engines = []dbEngine{onSQLite, onStandIn, onPostgres}
)

func connectStandIn(t *testing.T, clock engine.Clock) driver.Connector {
	server := mssqltest.Start(t, mssqltest.Options{Clock: clock, ReadCommittedSnapshot: true})
	c, err := mssql.NewConnector(server.DSN())
	require.NoError(t, err)
	return c
}

// onEach runs a test on every engine.
func onEach(t *testing.T, test func(*world)) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, e, e.create(t)))
		})
	}
}

// world is one test's database.
type world struct {
	*testing.T
	dbEngine
	faults *faultdb.Connector
	db     *sql.DB
}

func newWorld(t *testing.T, e dbEngine, c driver.Connector) *world {
	w := &world{T: t, dbEngine: e, faults: faultdb.New(c)}
	w.db = sql.OpenDB(w.faults)
	t.Cleanup(func() {
		w.faults.Inject(nil)
		require.NoError(t, w.db.Close())
	})
	return w
}

// queue migrates and opens a queue of text messages.
func (w *world) queue(name string, cfg chanq.Config) *chanq.Queue[string] {
	w.Helper()
	require.NoError(w, chanq.Migrate(w.soon(), w.db, name, cfg))
	q, err := chanq.Open[string](w.soon(), w.db, name, cfg)
	require.NoError(w, err)
	return q
}

// soon is a context for calls that must return.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		if time.Now().After(deadline) {
			require.Fail(w, "it never came to this: "+what)
		}
		<-tick.C
	}
}

func (w *world) exec(text string, args ...any) {
	w.Helper()
	_, err := w.db.ExecContext(w.soon(), text, args...)
	require.NoError(w, err, text)
}

func (w *world) produce(q *chanq.Queue[string], cfg chanq.ProducerConfig) *chanq.Producer[string] {
	w.Helper()
	p, err := q.Producer(cfg)
	require.NoError(w, err)
	w.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Close(over) // of a test that failed
	})
	return p
}

func (w *world) consume(q *chanq.Queue[string], cfg chanq.ConsumerConfig) *chanq.Consumer[string] {
	w.Helper()
	c, err := q.Consume(context.Background(), cfg)
	require.NoError(w, err)
	w.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Shutdown(over) // of a test that failed
	})
	return c
}

func (w *world) send(p *chanq.Producer[string], bodies ...string) []chanq.Receipt {
	w.Helper()
	ms := make([]chanq.Message[string], len(bodies))
	for i, b := range bodies {
		ms[i].Body = b
	}
	receipts, err := p.SendBatch(w.soon(), ms...)
	require.NoError(w, err)
	return receipts
}

// take receives n leases.
func (w *world) take(c *chanq.Consumer[string], n int) []*chanq.Lease[string] {
	w.Helper()
	var got []*chanq.Lease[string]
	timeout := time.After(patience)
	for len(got) < n {
		select {
		case l, open := <-c.C():
			require.True(w, open, "the channel closed after %d of %d leases: %v", len(got), n, c.Err())
			got = append(got, l)
		case <-timeout:
			require.Fail(w, "no more leases", "%d of %d", len(got), n)
		}
	}
	return got
}

// counted is Stats without what depends on time.
func (w *world) counted(q *chanq.Queue[string]) chanq.Stats {
	w.Helper()
	s, err := q.Stats(w.soon())
	require.NoError(w, err)
	s.OldestReady, s.Limit = 0, 0
	return s
}

// statements builds the statements of a queue, to know them when they pass.
func (w *world) statements(name string) sqlbatch.Queue {
	return w.dialect.Queue(sqlbatch.Names{Queue: name})
}

// runs reports that op is the run of a statement that differs from st at most
// in its values.
func runs(op faultdb.Op, st sqlbatch.Statement) bool {
	if op.Kind != faultdb.Exec && op.Kind != faultdb.Query || op.Text != st.Text {
		return false
	}
	return st.Text != "sp_executesql" || len(op.Args) > 0 && op.Args[0].Value == st.Args[0]
}

// strike has f strike every run of the statements.
func (w *world) strike(f faultdb.Fault, meant ...sqlbatch.Statement) {
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		for _, st := range meant {
			if runs(op, st) {
				return f
			}
		}
		return faultdb.Fault{}
	})
}
