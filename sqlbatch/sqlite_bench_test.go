package sqlbatch_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// BenchmarkBuild is the making of each statement of a batch, for every dialect.
// An operation is a statement of 500 rows.
func BenchmarkBuild(b *testing.B) {
	const n = 500
	rows := make([]sqlbatch.Row, n)
	items := make([]sqlbatch.Item, n)
	nacks := make([]sqlbatch.NackItem, n)
	releases := make([]sqlbatch.ReleaseItem, n)
	buries := make([]sqlbatch.BuryItem, n)
	body := make([]byte, 200)
	for i := range n {
		_, _ = rand.Read(items[i].ID[:]) // never fails
		items[i].Fence = int64(i)
		rows[i] = sqlbatch.Row{ID: items[i].ID, Body: body}
		nacks[i] = sqlbatch.NackItem{Item: items[i], Delay: time.Second, Error: "timeout"}
		releases[i] = sqlbatch.ReleaseItem{Item: items[i], Due: 1_700_000_000_000}
		buries[i] = sqlbatch.BuryItem{Item: items[i], Error: "timeout"}
	}
	for _, d := range []sqlbatch.Dialect{sqlbatch.SQLite} {
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
			{"release", func() sqlbatch.Statement { return q.Release(releases) }},
			{"bury", func() sqlbatch.Statement { return q.Bury(buries) }},
			{"extend", func() sqlbatch.Statement { return q.Extend(items, time.Minute) }},
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
