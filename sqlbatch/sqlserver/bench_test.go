package sqlserver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// BenchmarkCycle enqueues, claims and acks as many messages as one statement acks. It measures the emulator, not SQL
// Server.
func BenchmarkCycle(b *testing.B) {
	q := newQueue(b, mssqltest.Options{})
	n := sqlserver.Dialect.Traits().AckItems
	rows := makeRows(n, 0)
	claim := sqlbatch.ClaimParams{Rows: n, Lease: time.Minute, Salt: 1, Inline: sqlbatch.MaxBody}
	b.ReportAllocs()
	for b.Loop() {
		for i := range rows {
			rows[i].ID = newID()
		}
		q.exec(q.Enqueue(rows))
		claimed := q.rows(q.Claim(claim))
		require.Len(b, claimed, n)
		require.Len(b, q.rows(q.Ack(itemsOf(claimed))), n)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/message")
}
