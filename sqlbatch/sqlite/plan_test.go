package sqlite_test

import (
	"context"
	"database/sql"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestGolden(t *testing.T) { suite.Golden(t, sqlite.Dialect) }

// claimOf claims n messages.
func claimOf(n int, lease time.Duration) sqlbatch.ClaimParams {
	return sqlbatch.ClaimParams{Rows: n, Lease: lease, Consumer: [16]byte{15: 9}, Salt: 1 + rand.Int64N(1<<sqlbatch.FenceBits), Inline: sqlbatch.MaxBody}
}

// table is a queue in an in-memory database, on one connection.
type table struct {
	testing.TB
	conn *sql.Conn
	q    sqlbatch.Queue
}

func newTable(t testing.TB, n sqlbatch.Names) *table {
	t.Helper()
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	conn, err := db.Conn(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	testdb.MigrateTables(t, sqlite.Dialect, db, n)
	return &table{t, conn, sqlite.Dialect.Queue(n)}
}

// run runs a statement and returns its rows.
func (s *table) run(st sqlbatch.Statement) [][]any {
	s.Helper()
	rows, err := testdb.Rows(context.Background(), s.conn, st)
	require.NoError(s, err, st.Text)
	return rows
}

// plan returns SQLite's description of how it would run a statement.
func (s *table) plan(st sqlbatch.Statement) string {
	s.Helper()
	var lines []string
	for _, p := range append(slices.Clone(st.Prior), st) {
		for _, row := range s.run(sqlbatch.Statement{Text: "EXPLAIN QUERY PLAN " + p.Text, Args: p.Args}) {
			lines = append(lines, strings.ReplaceAll(row[3].(string), "main.", ""))
		}
	}
	return strings.Join(lines, "\n")
}

// fill stores n ready messages, a quarter in each lane.
func (s *table) fill(n int) {
	s.Helper()
	s.run(sqlbatch.Statement{Text: `INSERT INTO chanq_orders (id, priority, due_at, enqueued_at, fence, attempts, dedup_key, body)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
SELECT CAST(printf('%016d', i) AS BLOB), i % 4 - 1, i, i, 0, 0, printf('key %d', i), x'00' FROM n`, Args: []any{n}})
}

// TestPlans checks the plans of an empty table, of a deep one, and of a deep
// one with statistics.
func TestPlans(t *testing.T) {
	const (
		live   = "chanq_orders"
		unique = "USING INDEX sqlite_autoindex_chanq_orders_1 (id=?)"
	)
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	check := func(t *testing.T) {
		statements := suite.Calls(table.q, "a")
		plans := map[string]string{}
		for name, st := range statements {
			plans[name] = table.plan(st)
		}
		for _, name := range []string{"claim", "next-due", "ack", "archive", "extend", "nack", "release", "dead-letter", "get", "cancel", "run-now", "find", "look", "rescue", "contents", "enqueue-keep-queued", "enqueue-replace",
			"trim", "purge-ready", "purge-scheduled", "purge-leased", "browse-ready", "browse-scheduled", "browse-leased"} {
			for line := range strings.Lines(plans[name]) {
				// A full walk of a table or of one of its indexes. The list of a batch and the rows of a subquery are always
				// walked.
				for _, scanned := range []string{"SCAN " + live, "SCAN q", "SCAN o ", "SCAN d"} {
					require.False(t, strings.HasPrefix(strings.TrimSpace(line), scanned), "%s walks a whole table:\n%s", name, plans[name])
				}
			}
		}
		const index = "USING INDEX ix_chanq_orders__due "
		seeks := func(statement, seek string) int {
			return strings.Count(plans[statement], seek)
		}
		require.Equal(t, 4, seeks("claim", index+"(priority=? AND (due_at,id)>(?,?) AND due_at<?)"), "one seek a lane:\n%s", plans["claim"])
		require.NotContains(t, plans["claim"], "TEMP B-TREE", "the index has the order")
		require.Equal(t, 1, seeks("contents", unique), plans["contents"])
		require.Equal(t, 1, seeks("rescue", index+"(priority=? AND (due_at,id)>(?,?) AND due_at<?)"), plans["rescue"])
		require.NotContains(t, plans["rescue"], "TEMP B-TREE", "the index has the order")
		require.Equal(t, 4, seeks("next-due", index+"(priority=? AND (due_at,id)>(?,?))"), plans["next-due"])
		require.Equal(t, 9, seeks("rescan", "(priority=? AND due_at<?)"), plans["rescan"])
		require.Equal(t, 4, seeks("rescan", "(priority=? AND due_at>?)"), plans["rescan"])
		for _, seek := range []string{"(priority=? AND due_at<?)", "(priority=? AND due_at>?)"} {
			require.LessOrEqual(t, 4, seeks("stats", seek), "%s\n%s", seek, plans["stats"])
		}
		const behind = index + "(priority=? AND (due_at,id)>(?,?)"
		for _, seek := range []struct{ state, seek string }{
			{"ready", behind + " AND due_at<?)"}, {"scheduled", behind + ")"}, {"leased", behind + " AND due_at<?)"},
		} {
			require.Equal(t, 4, seeks("browse-"+seek.state, strings.Replace(seek.seek, "USING", "USING COVERING", 1)), "a page begins at its place:\n%s", plans["browse-"+seek.state])
			require.Equal(t, 1, seeks("purge-"+seek.state, seek.seek), "and so does a step:\n%s", plans["purge-"+seek.state])
			require.NotContains(t, plans["purge-"+seek.state], "TEMP B-TREE")
		}
		for _, state := range []string{"dead", "done"} {
			require.Contains(t, plans["peek-"+state], "USING INDEX ix_chanq_orders__"+state+"_ended ((ended_at,id)<(?,?))", plans["peek-"+state])
		}
		for name, table := range map[string]string{"purge-dead": "dead", "purge-done": "done", "redrive": "dead"} {
			require.Contains(t, plans[name], "ix_chanq_orders__"+table+"_ended ((ended_at,id)>(?,?) AND ended_at<?)", plans[name])
		}
		for name, seek := range map[string]string{
			"walk": "__dead_ended ((ended_at,id)>(?,?) AND ended_at<?)", "walk-group": "__dead_cause (cause=? AND fingerprint=? AND (ended_at,id)>(?,?) AND ended_at<?)",
			"walk-bare": "__dead_cause (cause=? AND fingerprint=? AND (ended_at,id)>(?,?) AND ended_at<?)",
		} {
			require.Contains(t, plans[name], "SEARCH chanq_orders__dead USING INDEX ix_chanq_orders"+seek, plans[name])
			require.NotContains(t, plans[name], "TEMP B-TREE")
		}
		require.Equal(t, 3, seeks("causes", "SEARCH d USING COVERING INDEX ix_chanq_orders__dead_cause (cause=? AND fingerprint=?)"), "the count, the first and the last:\n%s", plans["causes"])
		require.Contains(t, plans["causes"], "SEARCH f USING COVERING INDEX ix_chanq_orders__dead_cause (cause=? AND fingerprint>?)")
		require.Contains(t, plans["causes"], "SEARCH f USING COVERING INDEX ix_chanq_orders__dead_cause (cause>?)")
		require.NotContains(t, plans["causes"], "SCAN d")
		require.NotContains(t, plans["causes"], "SCAN f")
		for _, name := range []string{"ack", "archive", "extend", "nack", "release", "dead-letter"} {
			require.Contains(t, plans[name], "SEARCH q "+unique, "the list outside, the unique index inside: %s\n%s", name, plans[name])
		}
		require.Contains(t, plans["get"], "SEARCH "+live+" "+unique, plans["get"])
		require.Contains(t, plans["cancel"], "SEARCH "+live+" USING COVERING INDEX sqlite_autoindex_chanq_orders_1 (id=?)", plans["cancel"])
		require.Contains(t, plans["find"], "sqlite_autoindex_chanq_orders_1 (id=?)", plans["find"])
		require.Contains(t, plans["find"], "ux_chanq_orders__dedup (dedup_key=?)", plans["find"])
		require.Contains(t, plans["enqueue-replace"], "SEARCH q USING INDEX ux_chanq_orders__dedup (dedup_key=?)", plans["enqueue-replace"])
		require.Contains(t, plans["trim"], "ix_chanq_orders__done_ended", plans["trim"])
	}
	t.Run("rows=0", check)
	table.run(sqlbatch.Statement{Text: "ANALYZE"})
	t.Run("rows=0/analyzed", check)
	table.fill(100_000)
	t.Run("rows=100000/analyzed-when-empty", check)
	table.run(sqlbatch.Statement{Text: "ANALYZE"})
	t.Run("rows=100000/analyzed", check)
}

func TestTextsDoNotDependOnTheBatch(t *testing.T) {
	q := sqlite.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	texts := map[string]bool{}
	for n := range 1000 {
		items := make([]sqlbatch.Item, n)
		body := make([]byte, n)
		for _, st := range []sqlbatch.Statement{
			q.Enqueue(make([]sqlbatch.Row, n)), q.Enqueue([]sqlbatch.Row{{Body: body, Headers: body}}), q.EnqueueNew(make([]sqlbatch.Row, n)),
			q.Ack(items), q.Extend(suite.Consumer, items, time.Duration(n)), q.Nack(make([]sqlbatch.NackItem, n)), q.DeadLetter(make([]sqlbatch.DeadLetterItem, n)),
			q.Release(suite.Releases(items)), q.Find(make([][16]byte, n), make([]string, n)),
			q.Claim(sqlbatch.ClaimParams{Rows: n, Lease: time.Duration(n), Salt: int64(n), Inline: sqlbatch.MaxBody}),
		} {
			texts[st.Text] = true
		}
	}
	require.Len(t, texts, 9)
}

func TestQuotesTheSchema(t *testing.T) {
	odd := `a "b" 'c' ` + "`d` [e] ü"
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.run(sqlbatch.Statement{Text: `ATTACH ':memory:' AS "` + strings.ReplaceAll(odd, `"`, `""`) + `"`})
	n := sqlbatch.Names{Schema: odd, Queue: "orders"}
	for _, text := range sqlite.Dialect.Migrations(n)[0].Statements {
		table.run(sqlbatch.Statement{Text: text})
	}
	q := sqlite.Dialect.Queue(n)
	table.run(q.Enqueue([]sqlbatch.Row{{ID: [16]byte{1}, Body: []byte("b")}}))
	require.Len(t, table.run(q.Claim(claimOf(1, 0))), 1)
	require.Empty(t, table.run(table.q.Claim(claimOf(1, 0))), "the other schema has none")
	statements := suite.Calls(q, "a")
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		table.run(statements[name])
	}
}
