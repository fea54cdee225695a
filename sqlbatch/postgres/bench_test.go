package postgres_test

import (
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// BenchmarkEnqueue compares ways to send 500 rows. The figures are in docs/internals/decisions.md.
//
// packed: this dialect. hex: bodies are also an array of bytea, so that no value needs to be cut out of another.
// values: a list of VALUES with a parameter for each value.
func BenchmarkEnqueue(b *testing.B) {
	const n = 500
	for _, size := range []int{100, 1000, 8000} {
		rows := make([]sqlbatch.Row, n)
		body := make([]byte, size)
		random := rand.NewChaCha8([32]byte{})
		for i := range rows {
			_, _ = random.Read(body)
			rows[i].Body = []byte(hex.EncodeToString(body))[:size]
		}
		for _, way := range []struct {
			name  string
			build func(sqlbatch.Queue, []sqlbatch.Row) sqlbatch.Statement
		}{
			{"packed", func(q sqlbatch.Queue, rows []sqlbatch.Row) sqlbatch.Statement { return q.Enqueue(rows) }},
			{"hex", hexEnqueue},
			{"values", valuesEnqueue},
		} {
			b.Run(fmt.Sprintf("body=%d/way=%s", size, way.name), func(b *testing.B) {
				db := pgtest.Open(b)
				db.SetMaxOpenConns(1)
				names := sqlbatch.Names{Queue: "orders"}
				testdb.MigrateTables(b, postgres.Dialect, db, names)
				q := postgres.Dialect.Queue(names)
				next := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					for i := range rows {
						next++
						binary.BigEndian.PutUint64(rows[i].ID[:], next)
					}
					st := way.build(q, rows)
					_, err := db.Exec(st.Text, st.Args...)
					require.NoError(b, err)
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

func hexEnqueue(_ sqlbatch.Queue, rows []sqlbatch.Row) sqlbatch.Statement {
	var ids, priorities, delays, bodies strings.Builder
	separator := "{"
	for i := range rows {
		fmt.Fprintf(&ids, "%s%x", separator, rows[i].ID)
		fmt.Fprintf(&priorities, "%s%d", separator, rows[i].Priority)
		fmt.Fprintf(&delays, "%s%d", separator, rows[i].Delay.Milliseconds())
		bodies.WriteString(separator + `"\\x`)
		bodies.WriteString(hex.EncodeToString(rows[i].Body))
		bodies.WriteString(`"`)
		separator = ","
	}
	return sqlbatch.Statement{Text: `INSERT INTO chanq_orders (id, priority, due_at, enqueued_at, fence, attempts, body)
SELECT a.id, a.priority, t.now + a.delay, t.now, 0, 0, a.body
FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS now OFFSET 0) AS t
CROSS JOIN unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bytea[]) AS a (id, priority, delay, body)`,
		Args: []any{ids.String() + "}", priorities.String() + "}", delays.String() + "}", bodies.String() + "}"}}
}

func valuesEnqueue(_ sqlbatch.Queue, rows []sqlbatch.Row) sqlbatch.Statement {
	var text strings.Builder
	text.WriteString(`INSERT INTO chanq_orders (id, priority, due_at, enqueued_at, fence, attempts, body)
SELECT a.id, a.priority, t.now + a.delay, t.now, 0, 0, a.body
FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS now OFFSET 0) AS t CROSS JOIN (VALUES `)
	args := make([]any, 0, 4*len(rows))
	for i := range rows {
		if i > 0 {
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "($%d::uuid, $%d::smallint, $%d::bigint, $%d::bytea)", 4*i+1, 4*i+2, 4*i+3, 4*i+4)
		args = append(args, hex.EncodeToString(rows[i].ID[:]), int64(rows[i].Priority), rows[i].Delay.Milliseconds(), rows[i].Body)
	}
	text.WriteString(") AS a (id, priority, delay, body)")
	return sqlbatch.Statement{Text: text.String(), Args: args}
}

// BenchmarkLease measures one round of leases with a backlog: the time of enqueues, claims and settles, with settles in
// both forms. The rows of a round are enqueued before it and deleted after it.
func BenchmarkLease(b *testing.B) {
	for _, backlog := range []int{0, 20_000} {
		for _, form := range []string{"waits", "skips"} {
			b.Run(fmt.Sprintf("backlog=%d/locked=%s", backlog, form), func(b *testing.B) {
				db := pgtest.Open(b)
				db.SetMaxOpenConns(1)
				names := sqlbatch.Names{Queue: "orders"}
				testdb.MigrateTables(b, postgres.Dialect, db, names)
				q := postgres.Dialect.Queue(names)
				settle := q
				if form == "skips" {
					settle = q.SkipLocked()
				}
				rows := make([]sqlbatch.Row, 500)
				next := uint64(0)
				spent := map[string]time.Duration{}
				run := func(op string, st sqlbatch.Statement) []sqlbatch.Item {
					start := time.Now()
					items := itemsOf(b, db, st)
					spent[op] += time.Since(start)
					return items
				}
				enqueue := func() {
					for i := range rows {
						next++
						binary.BigEndian.PutUint64(rows[i].ID[:], next)
						rows[i].Body = make([]byte, 200)
					}
					run("enqueue500", q.Enqueue(rows))
				}
				for range backlog / len(rows) {
					enqueue()
				}
				clear(spent)
				for b.Loop() {
					enqueue()
					enqueue()
					items := run("claim1000", q.Claim(claimOf(1000)))
					require.Len(b, items, 1000)
					require.Len(b, run("extend1000", settle.Extend(suite.Consumer, items, time.Hour)), 1000)
					require.Contains(b, []int{1, 1000}, len(run("ack1000", settle.Ack(items))), "one row may stand for all")
				}
				for op, d := range spent {
					if op == "enqueue500" {
						d /= 2
					}
					b.ReportMetric(float64(d.Microseconds())/float64(b.N), "µs/"+op)
				}
			})
		}
	}
}

// itemsOf returns the leases that a claim or settle returns.
func itemsOf(b *testing.B, db *sql.DB, st sqlbatch.Statement) (items []sqlbatch.Item) {
	rows, err := db.Query(st.Text, st.Args...)
	require.NoError(b, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(b, err)
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range into {
		into[i] = &values[i]
	}
	fence := slices.Index(columns, "fence")
	var value sql.NullInt64
	if fence >= 0 {
		into[fence] = &value
	}
	for rows.Next() {
		require.NoError(b, rows.Scan(into...))
		item := sqlbatch.Item{Fence: value.Int64}
		copy(item.ID[:], values[0])
		items = append(items, item)
	}
	require.NoError(b, rows.Err())
	return items
}
