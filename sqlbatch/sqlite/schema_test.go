package sqlite_test

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func (s *table) exec(text string, args ...any) {
	s.Helper()
	s.run(sqlbatch.Statement{Text: text, Args: args})
}

func (s *table) now() int64 {
	s.Helper()
	return s.run(s.q.Clock())[0][0].(int64)
}

func (s *table) claim(n int) [][]any {
	s.Helper()
	return s.run(s.q.Claim(claimOf(n, time.Minute)))
}

func numbered(n int) [16]byte { return [16]byte{14: byte(n >> 8), 15: byte(n)} }

func (s *table) send(from, n int, delay time.Duration) {
	s.Helper()
	var rows []sqlbatch.Row
	for i := range n {
		rows = append(rows, sqlbatch.Row{ID: numbered(from + i), Priority: int8(i%4 - 1), Delay: delay, Body: []byte("b")})
	}
	s.run(s.q.Enqueue(rows))
}

func TestAnInsertOfAnotherProgramIsAMessage(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	const n = 7000 // with 5000 a byte would miss one of its values in one of 150,000 runs
	before := table.now()
	for range n / 100 {
		table.exec(`INSERT INTO chanq_orders (body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT 'text' FROM n`)
	}
	after := table.now()

	ids := table.run(sqlbatch.Statement{Text: "SELECT id FROM chanq_orders ORDER BY rowid"})
	require.Len(t, ids, n)
	distinct, values := map[[16]byte]bool{}, map[int]map[byte]bool{}
	last := int64(0)
	for _, row := range ids {
		id := [16]byte(row[0].([]byte))
		require.Equal(t, byte(0x70), id[6]&0xf0, "version 7: %x", id)
		require.Equal(t, byte(0x80), id[8]&0xc0, "variant 10: %x", id)
		made := int64(binary.BigEndian.Uint64(id[:8]) >> 16)
		require.GreaterOrEqual(t, made, max(last, before), "ids ascend with time")
		require.LessOrEqual(t, made, after)
		last = made
		distinct[id] = true
		for i := 6; i < 16; i++ {
			if values[i] == nil {
				values[i] = map[byte]bool{}
			}
			values[i][id[i]] = true
		}
	}
	require.Len(t, distinct, n)
	for i, seen := range values {
		want := 256
		switch i {
		case 6:
			want = 16 // in addition to the version
		case 8:
			want = 64 // in addition to the variant
		}
		require.Len(t, seen, want, "byte %d is random", i)
	}
	require.Greater(t, last, before, "it took a while")

	claimed := table.claim(1)
	require.Len(t, claimed, 1)
	require.Equal(t, "text", claimed[0][len(claimed[0])-2])
	require.EqualValues(t, 1, claimed[0][3])
}

// Tests a time in the past or future, in which each byte takes any value.
func TestEachByteOfATimeIsInTheID(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	ddl := table.run(sqlbatch.Statement{Text: "SELECT sql FROM sqlite_schema WHERE name = 'chanq_orders'"})[0][0].(string)
	expression := idExpression(t, ddl)
	for i := range 256 {
		at := int64(i)<<32 | int64(255-i)<<24 | int64(i^0x55)<<16 | int64(i^0xaa)<<8 | int64(i) | int64(i&7)<<40
		id := table.run(sqlbatch.Statement{Text: "SELECT " + expression, Args: []any{at}})[0][0].([]byte)
		require.Len(t, id, 16)
		require.Equal(t, at, int64(binary.BigEndian.Uint64(id)>>16))
	}
}

// idExpression returns the default of the id, for the time ?1.
func idExpression(t *testing.T, ddl string) string {
	_, rest, found := strings.Cut(ddl, "DEFAULT (CAST(substr(")
	require.True(t, found)
	expression, _, found := strings.Cut(rest, "randomblob(7) AS BLOB)")
	require.True(t, found)
	now := "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
	require.Equal(t, 6, strings.Count(expression, now))
	return "CAST(substr(" + strings.ReplaceAll(expression, now, "?1") + "randomblob(7) AS BLOB)"
}

func TestRowsThatNoStatementCouldFindAreRefused(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	for _, values := range []string{
		"(priority, body) VALUES (-2, 'b')", "(priority, body) VALUES (3, 'b')", "(priority, body) VALUES (0.5, 'b')", "(priority, body) VALUES ('urgent', 'b')",
		"(id, body) VALUES (x'00', 'b')", "(id, body) VALUES ('0123456789abcdef', 'b')", "(id, body) VALUES (7, 'b')",
		"(due_at, body) VALUES ('2026-01-01', 'b')", "(due_at, body) VALUES (0.5, 'b')", "(lease_until, body) VALUES ('now', 'b')", "(enqueued_at, body) VALUES ('now', 'b')",
		"(expires_at, body) VALUES ('tomorrow', 'b')", "(body) VALUES (NULL)",
	} {
		_, err := table.conn.ExecContext(t.Context(), "INSERT INTO chanq_orders "+values)
		require.Equal(t, sqlbatch.BadRow, sqlite.Dialect.Classify(err), "%s: %v", values, err)
	}
	require.Empty(t, table.run(sqlbatch.Statement{Text: "SELECT id FROM chanq_orders"}))
}

func TestProblemsAreReported(t *testing.T) {
	kinds := func(db *sql.DB, q sqlbatch.Queue) (kinds []string) {
		t.Helper()
		rows, err := db.Query(q.Problems().Text)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var kind, found string
			require.NoError(t, rows.Scan(&kind, &found))
			require.NotEmpty(t, found)
			kinds = append(kinds, kind)
		}
		require.NoError(t, rows.Err())
		return kinds
	}
	names := sqlbatch.Names{Queue: "orders"}
	q := sqlite.Dialect.Queue(names)
	migrate := func(db *sql.DB) {
		t.Helper()
		for _, text := range sqlite.Dialect.Migrations(names)[0].Statements {
			_, err := db.Exec(text)
			require.NoError(t, err)
		}
	}
	for _, path := range []string{":memory:", filepath.Join(t.TempDir(), "queue.db")} {
		db, err := embedded.Open(path)
		require.NoError(t, err)
		defer db.Close()
		require.Empty(t, kinds(db, q), "before there are tables: %s", path)
		migrate(db)
		require.Empty(t, kinds(db, q), path)
	}
	for text, want := range map[string][]string{
		"PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (n)":              {"encoding"},
		"PRAGMA encoding = 'UTF-16be'; CREATE TABLE t (n)":              {"encoding"},
		"PRAGMA synchronous = NORMAL":                                   {"durability"},
		"PRAGMA synchronous = OFF":                                      {"durability"},
		"PRAGMA synchronous = EXTRA":                                    nil,
		"PRAGMA journal_mode = MEMORY":                                  {"durability"},
		"PRAGMA journal_mode = OFF":                                     {"durability"},
		"PRAGMA journal_mode = TRUNCATE":                                nil,
		"CREATE TABLE chanq_orders (id BLOB PRIMARY KEY)":               {"form", "form"},
		"CREATE TABLE chanq_orders (id BLOB PRIMARY KEY, lapses)":       {"form"},
		"CREATE TABLE chanq_orders (id BLOB PRIMARY KEY, type)":         {"form"},
		"CREATE TABLE chanq_orders (id BLOB PRIMARY KEY, lapses, type)": nil,
		"CREATE TABLE chanq_others (id BLOB PRIMARY KEY)":               nil,
		"CREATE VIEW chanq_orders__dead AS SELECT 1 AS id":              {"table"},
	} {
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "queue.db"))
		require.NoError(t, err)
		defer db.Close()
		db.SetMaxOpenConns(1)
		_, err = db.Exec(text)
		require.NoError(t, err)
		require.Equal(t, want, kinds(db, q), text)
	}
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, err = db.Exec("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF")
	require.NoError(t, err)
	require.Empty(t, kinds(db, q), "an in-memory database without tables has no problem")
	migrate(db)
	require.Equal(t, []string{"memory"}, kinds(db, q), "its tables belong to this connection")
}

func TestAQueueThatIsNotRegisteredYieldsNothing(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.send(0, 1, 0)
	table.exec("DELETE FROM chanq__queues")
	require.Empty(t, table.claim(1))
	require.Equal(t, [][]any{{nil}}, table.run(table.q.NextDue(sqlbatch.Heads{})))
}

func TestAnErrorOfATriggerBelongsToTheRow(t *testing.T) {
	for _, action := range []string{"ABORT", "FAIL", "ROLLBACK"} {
		table := newTable(t, sqlbatch.Names{Queue: "orders"})
		table.exec(fmt.Sprintf("CREATE TRIGGER refuse BEFORE INSERT ON chanq_orders BEGIN SELECT RAISE(%s, 'not today'); END", action))
		st := table.q.Enqueue([]sqlbatch.Row{{ID: numbered(1)}})
		_, err := table.conn.ExecContext(t.Context(), st.Text, st.Args...)
		require.ErrorContains(t, err, "not today")
		require.Equal(t, sqlbatch.BadRow, sqlite.Dialect.Classify(err), "%s: %v", action, err)
	}
}

func (s *table) face(n sqlbatch.Names) {
	s.Helper()
	for _, text := range sqlite.Dialect.View(n) {
		s.exec(text)
	}
}

func TestAViewReplacesAnOlderOne(t *testing.T) {
	n := sqlbatch.Names{Queue: "orders"}
	table := newTable(t, n)
	table.exec("CREATE VIEW chanq_orders__messages AS SELECT 1 AS one")
	table.face(n)
	table.face(n)
	table.send(1, 3, 0)
	require.Len(t, table.run(sqlbatch.Statement{Text: "SELECT state, id FROM chanq_orders__messages"}), 3)
}
