package mssqltest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/mssqltest"
	"github.com/chanq/chanq/internal/mssqltest/engine"
	"github.com/chanq/chanq/sqlbatch"
)

// BenchmarkCycle enqueues, claims and acknowledges 400 messages with one
// statement each. It measures the stand-in, not SQL Server.
func BenchmarkCycle(b *testing.B) {
	q := newQueue(b, mssqltest.Options{Clock: engine.RealClock{}})
	rows := makeRows(400, 0)
	claim := sqlbatch.ClaimParams{Rows: 400, Lease: time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		for i := range rows {
			rows[i].ID = newID()
		}
		q.exec(q.Enqueue(rows))
		claimed := q.rows(q.Claim(claim))
		require.Len(b, claimed, 400)
		require.Len(b, q.rows(q.Ack(itemsOf(claimed))), 400)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/400, "µs/message")
}
