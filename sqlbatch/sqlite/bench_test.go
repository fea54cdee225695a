package sqlite_test

import (
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

// BenchmarkBuild builds each statement of a batch, for every dialect. An operation is a statement of 500 rows.
func BenchmarkBuild(b *testing.B) {
	const n = 500
	rows := make([]sqlbatch.Row, n)
	items := make([]sqlbatch.Item, n)
	nacks := make([]sqlbatch.NackItem, n)
	deadLetters := make([]sqlbatch.DeadLetterItem, n)
	body := make([]byte, 200)
	for i := range n {
		_, _ = rand.Read(items[i].ID[:]) // never fails
		items[i].Fence = int64(i)
		rows[i] = sqlbatch.Row{ID: items[i].ID, Body: body}
		nacks[i] = sqlbatch.NackItem{Item: items[i], Delay: time.Second, Error: "timeout"}
		deadLetters[i] = sqlbatch.DeadLetterItem{Item: items[i], Error: "timeout"}
	}
	for _, d := range []sqlbatch.Dialect{sqlite.Dialect} {
		q := d.Queue(sqlbatch.Names{Queue: "orders"})
		for _, statement := range []struct {
			name  string
			build func() sqlbatch.Statement
		}{
			{"enqueue", func() sqlbatch.Statement { return q.Enqueue(rows) }},
			{"claim", func() sqlbatch.Statement {
				return q.Claim(sqlbatch.ClaimParams{Rows: n, Lease: time.Minute, Salt: 1})
			}},
			{"ack", func() sqlbatch.Statement { return q.Ack(items) }},
			{"nack", func() sqlbatch.Statement { return q.Nack(nacks) }},
			{"release", func() sqlbatch.Statement { return q.Release(suite.Releases(items)) }},
			{"dead-letter", func() sqlbatch.Statement { return q.DeadLetter(deadLetters) }},
			{"extend", func() sqlbatch.Statement { return q.Extend(suite.Consumer, items, time.Minute) }},
		} {
			b.Run(fmt.Sprintf("dialect=%s/statement=%s", d.Name(), statement.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if st := statement.build(); st.Text == "" {
						b.Fatal("no text")
					}
				}
			})
		}
	}
}

// BenchmarkSQLite runs the statements of a message in an in-memory database, where only the statements cost time, with
// a backlog of that many messages. An operation is a statement.
func BenchmarkSQLite(b *testing.B) {
	const n = 500
	body := make([]byte, 200)
	for _, backlog := range []int{0, 20_000} {
		for _, claims := range []int{16, n} {
			b.Run(fmt.Sprintf("backlog=%d/claim=%d", backlog, claims), func(b *testing.B) {
				table := newTable(b, sqlbatch.Names{Queue: "orders"})
				stmts := map[string]*sql.Stmt{}
				run := func(st sqlbatch.Statement) (items []sqlbatch.Item, took time.Duration) {
					stmt := stmts[st.Text]
					if stmt == nil {
						var err error
						stmt, err = table.conn.PrepareContext(b.Context(), st.Text)
						require.NoError(b, err)
						stmts[st.Text] = stmt
					}
					began := time.Now()
					rows, err := stmt.QueryContext(b.Context(), st.Args...)
					require.NoError(b, err)
					columns, _ := rows.Columns()
					values := make([]any, len(columns))
					places := make([]any, len(columns))
					for i := range values {
						places[i] = &values[i]
					}
					for rows.Next() {
						require.NoError(b, rows.Scan(places...))
						item := sqlbatch.Item{ID: [16]byte(values[0].([]byte))}
						if len(values) > 2 {
							item.Fence = values[2].(int64)
						}
						items = append(items, item)
					}
					require.NoError(b, rows.Close())
					return items, time.Since(began)
				}
				id := uint64(0)
				rows := make([]sqlbatch.Row, n)
				enqueue := func() time.Duration {
					for i := range rows {
						id++
						rows[i] = sqlbatch.Row{Body: body}
						binary.BigEndian.PutUint64(rows[i].ID[:], id)
					}
					_, took := run(table.q.Enqueue(rows))
					return took
				}
				for id < uint64(backlog) {
					enqueue()
				}
				var sent, claimed, acked time.Duration
				claimCount := 0
				for b.Loop() {
					sent += enqueue()
					for left := n; left > 0; left -= claims {
						items, took := run(table.q.Claim(claimOf(min(claims, left), time.Minute)))
						claimed, claimCount = claimed+took, claimCount+1
						_, took = run(table.q.Ack(items))
						acked += took
					}
				}
				b.ReportMetric(float64(sent.Microseconds())/float64(b.N), "µs/enqueue")
				b.ReportMetric(float64(claimed.Nanoseconds())/1000/float64(claimCount), "µs/claim")
				b.ReportMetric(float64(acked.Nanoseconds())/1000/float64(claimCount), "µs/ack")
			})
		}
	}
}
