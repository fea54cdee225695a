package limits_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	driver "modernc.org/sqlite"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// The cost of a claim of 100 messages must not depend on how many messages are scheduled or leased.
// It is counted in pages of the database, or for the emulator in keys, because these do not vary
// with the machine.

const claimed = 100

var (
	scheduled = testdb.Of(100_000, 1_000_000)
	leased    = testdb.Of(10_000, 100_000)
)

// deeper is how much more a claim may read than in an otherwise empty table: each of its walks down
// the claim index, and each probe of a key, may be three levels deeper.
const deeper = 3 * (4 + claimed)

// firsts numbers the fills of all tables, for ids that ascend as those of producers do.
var firsts atomic.Int64

// longAgo is when leased messages were due, in milliseconds from now.
const longAgo = "-3600000 - i % 1000"

// fromHead returns heads between the leased and the ready messages, however long it takes to fill
// the table.
func fromHead() (f sqlbatch.Heads) {
	for i := range f {
		f[i].Due = time.Now().Add(-30 * time.Second).UnixMilli()
	}
	return f
}

// countedSQLite returns a queue on a database with one connection, whose pages are counted.
func countedSQLite(t *testing.T) (*sql.DB, sqlbatch.Queue) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "queue.db")+"?_pragma=synchronous(OFF)&_pragma=cache_size(-65536)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	names := sqlbatch.Names{Queue: "work"}
	testdb.MigrateTables(t, sqlite.Dialect, db, names)
	return db, sqlite.Dialect.Queue(names)
}

// A query of the view for all columns except bodies reads no body: the length of a blob is in the
// row's header. This connection refuses to read a value as long as the body.
func TestOnSQLiteTheViewReadsNoUnselectedBody(t *testing.T) {
	t.Parallel()
	db, _ := countedSQLite(t)
	for _, text := range append(sqlite.Dialect.View(sqlbatch.Names{Queue: "work"}), "INSERT INTO chanq_work (body) VALUES (zeroblob(3000000))") {
		_, err := db.Exec(text)
		require.NoError(t, err)
	}
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	const maxLength = 0 // SQLITE_LIMIT_LENGTH
	_, err = driver.Limit(conn, maxLength, 1000000)
	require.NoError(t, err)
	look := func(columns string) (bytes int, err error) {
		err = conn.QueryRowContext(t.Context(), "SELECT bytes, "+columns+" FROM chanq_work__messages").Scan(&bytes, new(any))
		return bytes, err
	}
	_, err = look("body")
	require.ErrorContains(t, err, "too big")
	for _, column := range []string{"state", "id", "due_at", "expires_at", "attempts", "dedup_key", "last_error", "headers"} {
		bytes, err := look(column)
		require.NoError(t, err, column)
		require.Equal(t, 3000000, bytes)
	}
}

func fillSQLite(t *testing.T, db *sql.DB, n int, due, by string) {
	_, err := db.Exec(`INSERT INTO chanq_work (id, priority, due_at, lease_until, enqueued_at, fence, attempts, leased_by, body)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
SELECT CAST(printf('%06d%010d', ?3, i) AS BLOB), i % 4 - 1, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + `+due+`, CASE ?2 WHEN '' THEN 0 ELSE 9000000000000 END, 0, 1, 1, CASE ?2 WHEN '' THEN NULL ELSE zeroblob(16) END, zeroblob(100) FROM n`,
		n, by, firsts.Add(1))
	require.NoError(t, err)
}

func TestOnSQLiteTheCostOfAClaimDoesNotGrowWithAMillionMessages(t *testing.T) {
	t.Parallel()
	db, q := countedSQLite(t)
	ready := func() { fillSQLite(t, db, 1000, "-i", "") }
	measure := func(st sqlbatch.Statement, rows int) int {
		before := pagesRead(t, db)
		require.Equal(t, rows, runIt(t, db, st))
		return pagesRead(t, db) - before
	}
	claim := q.Claim(sqlbatch.ClaimParams{Rows: claimed, Lease: time.Hour, Consumer: [16]byte{1}, Inline: sqlbatch.MaxBody, Heads: fromHead()})
	ready()
	measure(claim, claimed) // this reads the schema
	alone, look := measure(claim, claimed), measure(q.NextDue(fromHead()), 1)
	others, held := scheduled/slower, leased/slower
	fillSQLite(t, db, others, "3600000 + i", "")
	fillSQLite(t, db, held, longAgo, "another")
	ready()
	among, lookAmong := measure(claim, claimed), measure(q.NextDue(fromHead()), 1)
	t.Logf("pages for a claim of %d: %d alone, %d with %d scheduled and %d leased; for a look: %d, %d", claimed, alone, among, others, held, look, lookAmong)
	require.LessOrEqual(t, among, alone+3*deeper)    // a claim reads, writes and moves each entry
	require.LessOrEqual(t, lookAmong, look+3*deeper) // the poll skips the entries that the claims took
}

// pagesRead returns the number of pages that the only connection has read.
func pagesRead(t *testing.T, db *sql.DB) (pages int) {
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Raw(func(c any) error {
		for _, op := range []driver.DBStatusOp{driver.DBStatusCacheHit, driver.DBStatusCacheMiss} {
			n, _, err := c.(driver.DBStatus).Status(op, false)
			if err != nil {
				return err
			}
			pages += n
		}
		return nil
	}))
	return pages
}

// runIt returns the number of rows of a statement.
func runIt(t *testing.T, db *sql.DB, st sqlbatch.Statement) int {
	t.Helper()
	rows, err := testdb.Rows(t.Context(), db, st)
	require.NoError(t, err)
	return len(rows)
}

func TestOnPostgreSQLTheCostOfAClaimDoesNotGrowWithAMillionMessages(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	names := sqlbatch.Names{Queue: "work"}
	testdb.MigrateTables(t, postgres.Dialect, db, names)
	q := postgres.Dialect.Queue(names)
	fill := func(n int, due string, held bool) {
		_, err := db.Exec(`INSERT INTO chanq_work (id, priority, due_at, lease_until, enqueued_at, fence, attempts, leased_by, body)
SELECT (lpad(to_hex($3::bigint), 16, '0') || lpad(to_hex(i), 16, '0'))::uuid, i % 4 - 1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint + `+due+`, CASE WHEN $2 THEN 9000000000000 ELSE 0 END, 0, 1, 1, CASE WHEN $2 THEN gen_random_uuid() END, convert_to(repeat('x', 100), 'UTF8')
FROM generate_series(1, $1) AS i`, n, held, firsts.Add(1))
		require.NoError(t, err)
	}
	claim := q.Claim(sqlbatch.ClaimParams{Rows: claimed, Lease: time.Hour, Salt: 1, Inline: sqlbatch.MaxBody, Heads: fromHead()})
	fill(1000, "-i", false)
	buffersRead(t, db, claim) // this reads the catalog
	alone, look := buffersRead(t, db, claim), buffersRead(t, db, q.NextDue(fromHead()))
	fill(scheduled, "3600000 + i", false)
	fill(leased, longAgo, true)
	fill(1000, "-i", false)
	for _, statistics := range []string{"as autovacuum left them", "up to date"} {
		buffersRead(t, db, claim)
		among, lookAmong := buffersRead(t, db, claim), buffersRead(t, db, q.NextDue(fromHead()))
		t.Logf("statistics %s: buffers for a claim of %d: %d alone, %d with %d scheduled and %d leased; for a look: %d, %d",
			statistics, claimed, alone, among, scheduled, leased, look, lookAmong)
		require.LessOrEqual(t, among, alone+3*deeper)
		require.LessOrEqual(t, lookAmong, look+deeper)
		_, err := db.Exec(`ANALYZE chanq_work`)
		require.NoError(t, err)
	}
}

// buffersRead returns the number of buffers that a statement touches, and rolls it back.
func buffersRead(t *testing.T, db *sql.DB, st sqlbatch.Statement) int {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	var text []byte
	require.NoError(t, tx.QueryRowContext(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) `+st.Text, st.Args...).Scan(&text))
	var plans []struct {
		Plan map[string]any
	}
	require.NoError(t, json.Unmarshal(text, &plans))
	require.Len(t, plans, 1)
	sum := 0
	for _, field := range []string{"Shared Hit Blocks", "Shared Read Blocks"} {
		n, ok := plans[0].Plan[field].(float64)
		require.True(t, ok, field)
		sum += int(n)
	}
	require.NotZero(t, sum)
	return sum
}

func TestOnTheEmulatorTheCostOfAClaimDoesNotGrowWithTheMessages(t *testing.T) {
	t.Parallel()
	others, held := testdb.Of(10_000, 50_000/slower), testdb.Of(5_000, 10_000/slower)
	server := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true})
	db := server.DB()
	names := sqlbatch.Names{Queue: "work"}
	testdb.MigrateTables(t, sqlserver.Dialect, db, names)
	q := sqlserver.Dialect.Queue(names)
	next := 0
	fill := func(n int, delay time.Duration) {
		for ; n > 0; n -= 500 {
			rows := make([]sqlbatch.Row, 500)
			for i := range rows {
				next++
				rows[i] = sqlbatch.Row{Priority: int8(i%4 - 1), Delay: delay, Body: []byte("x")}
				copy(rows[i].ID[:], fmt.Sprintf("%016x", uint64(next)*0x9E3779B97F4A7C15)) // in no order
			}
			st := q.Enqueue(rows)
			_, err := db.ExecContext(t.Context(), st.Text, st.Args...)
			require.NoError(t, err)
		}
	}
	keys := func(st sqlbatch.Statement, rows int) (sum int64) {
		server.ResetQueryStats()
		require.Equal(t, rows, runIt(t, db, st))
		for _, p := range server.QueryStats() {
			sum += p.KeysRead
		}
		return sum
	}
	fill(held, 0)
	for left := held; left > 0; left -= 500 {
		require.Equal(t, 500, runIt(t, db, q.Claim(sqlbatch.ClaimParams{Rows: 500, Lease: time.Minute, Consumer: [16]byte{1}, Inline: sqlbatch.MaxBody})))
	}
	server.Clock().Advance(time.Second) // far more than HeadMargin
	var heads sqlbatch.Heads
	for i := range heads {
		heads[i].Due = server.Clock().Now().UnixMilli()
	}
	fill(others, time.Hour)
	fill(1000, 0)
	claim := keys(q.Claim(sqlbatch.ClaimParams{Rows: claimed, Lease: time.Minute, Inline: sqlbatch.MaxBody, Heads: heads}), claimed)
	require.Equal(t, int64(1+2*claimed), claim, "the row with the paused flag, and for each message its entry and its row")
	look := keys(q.NextDue(heads), 1)
	require.LessOrEqual(t, look, int64(claimed+10), "the poll skips the entries that the claim took")
	t.Logf("keys for a claim of %d with %d scheduled and %d leased: %d; for a look: %d", claimed, others, held, claim, look)
}
