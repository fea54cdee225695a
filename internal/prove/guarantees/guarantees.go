// Package guarantees is the suite that every engine passes: one test for each
// guarantee of chanq, and for each behaviour that its documentation promises.
// It drives the public API against a real database through faultdb, which cuts,
// fails and holds the statements it chooses.
package guarantees

import (
	"database/sql"
	"database/sql/driver"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Engine is a kind of database to test.
type Engine struct {
	Name    string
	Dialect sqlbatch.Dialect
	// Create makes an empty database and returns its address. What it made is
	// removed by a cleanup of the test.
	Create func(*testing.T) string
	// Connect opens an address, also in another process if Shared.
	Connect func(address string) (driver.Connector, error)
	// Shared: processes can share a database by its address.
	Shared bool
	// Copy copies the database of an address, to which nobody is connected, and
	// returns the address of the copy. Nil: it cannot be copied.
	Copy func(t *testing.T, address string) string
	// Errors of this engine's driver, one for each class that the suite injects:
	// Unknown is that of a broken connection.
	Errors map[sqlbatch.Class]error
}

// Run runs the suite.
func Run(t *testing.T, e Engine) {
	for _, suite := range [][]test{
		delivery, leasing, settling, stopping, sending, deduplicating, transacting, ordering, bounds, reading, piping,
		operating, sweeping, trusting, outages, stuck, trouble, misbehaving, contexts, processes, claiming, lapsing, expiring, joining, sparing, dropping,
	} {
		for _, c := range suite {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(&world{T: t, engine: e})
			})
		}
	}
}

type test struct {
	name string
	run  func(*world)
}

// Main runs the tests of a package, or, in a process that a test has started,
// that process's part. Call it from TestMain.
func Main(run func() int, engines ...Engine) {
	if part := os.Getenv(partVariable); part != "" {
		os.Exit(playPart(part, engines))
	}
	waitTogether()
	os.Exit(run())
}

// waitTogether has more tests run at once than there are processors, unless -parallel
// says how many: they wait for leases to end most of their time.
func waitTogether() {
	const parallel, most = "test.parallel", "4"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if !given {
		_ = flag.Set(parallel, most)
	}
}

// world is one test's database.
type world struct {
	*testing.T
	engine  Engine
	address string
	faults  *faultdb.Connector
	db      *sql.DB
}

// open makes the database, once.
func (w *world) open() *sql.DB {
	if w.db == nil {
		w.address = w.engine.Create(w.T)
		w.faults, w.db = w.connect()
	}
	return w.db
}

// connect opens the database again, apart from w.db.
func (w *world) connect() (*faultdb.Connector, *sql.DB) {
	c, err := w.engine.Connect(w.address)
	require.NoError(w, err)
	faults := faultdb.New(c)
	db := sql.OpenDB(faults)
	w.Cleanup(func() {
		faults.Inject(nil)
		require.NoError(w, db.Close())
	})
	return faults, db
}

// queue migrates and opens a queue of text messages.
func (w *world) queue(name string, cfg chanq.Config) *chanq.Queue[string] {
	return queueOf[string](w, name, cfg)
}

func queueOf[T any](w *world, name string, cfg chanq.Config) *chanq.Queue[T] {
	db := w.open()
	require.NoError(w, chanq.Migrate(w.Context(), db, name, cfg))
	return openOn[T](w, db, name, cfg)
}

func openOn[T any](w *world, db *sql.DB, name string, cfg chanq.Config) *chanq.Queue[T] {
	q, err := chanq.Open[T](w.Context(), db, name, cfg)
	require.NoError(w, err)
	return q
}

// statements builds the statements of a queue, to know them when they pass.
func (w *world) statements(name string) sqlbatch.Queue {
	return w.engine.Dialect.Queue(sqlbatch.Names{Queue: name})
}

// runs reports that op is the run of a statement that differs from st at most
// in its values.
func runs(op faultdb.Op, st sqlbatch.Statement) bool {
	if op.Kind != faultdb.Exec && op.Kind != faultdb.Query || op.Text != st.Text {
		return false
	}
	// A procedure that executes its first argument. Whoever prepares the call has
	// none yet, and runs no statement.
	if st.Text == "sp_executesql" && len(st.Args) > 0 {
		return len(op.Args) > 0 && op.Args[0].Value == st.Args[0]
	}
	return true
}

func claims(op faultdb.Op, q sqlbatch.Queue) bool {
	return runs(op, q.Claim(sqlbatch.ClaimParams{Rows: 1, Suspects: true})) ||
		runs(op, q.Claim(sqlbatch.ClaimParams{Rows: 1, Lapses: 1})) || blindClaims(op, q)
}

func blindClaims(op faultdb.Op, q sqlbatch.Queue) bool {
	return runs(op, q.Claim(sqlbatch.ClaimParams{Rows: 1, Suspects: true, Blind: true})) ||
		runs(op, q.Claim(sqlbatch.ClaimParams{Rows: 1, Lapses: 1, Blind: true}))
}

func acks(op faultdb.Op, q sqlbatch.Queue) bool {
	return runs(op, q.Ack(nil)) || runs(op, q.SkipLocked().Ack(nil))
}

// extends are the keeper's, ends Lease.Extend's.
func extends(op faultdb.Op, q sqlbatch.Queue) bool {
	return runs(op, q.Extend(nil, 0)) || runs(op, q.SkipLocked().Extend(nil, 0))
}

func ends(op faultdb.Op, q sqlbatch.Queue) bool {
	return runs(op, q.EndAfter(nil, 0)) || runs(op, q.SkipLocked().EndAfter(nil, 0))
}

func enqueues(op faultdb.Op, q sqlbatch.Queue) bool {
	return op.Kind == faultdb.Exec && runs(op, q.Enqueue(make([]sqlbatch.Row, 1)))
}
