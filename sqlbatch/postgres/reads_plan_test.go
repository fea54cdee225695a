//go:build ownerreads

package postgres_test

import (
	"fmt"
	"math"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// TestReadsOfOwnersWalkTheIndexWhateverTheStatistics: no plan sorts rows or scans the table.
func TestReadsOfOwnersWalkTheIndexWhateverTheStatistics(t *testing.T) {
	q, claim := newOrdered(t)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	keys := []string{"k1", "k2"}
	reads := map[string]sqlbatch.Statement{
		"read":     q.Read(sqlbatch.SlotRead{Member: member, Parts: claim.Parts, Cursor: 1 << 30, Upto: math.MaxInt64, Rows: 1000, Keys: keys}),
		"catch-up": q.Read(sqlbatch.SlotRead{Member: member, Parts: claim.Parts, Cursor: 0, Upto: 1 << 40, Rows: 1000, Old: math.MaxInt64}),
		"few":      q.Read(sqlbatch.SlotRead{Member: member, Parts: claim.Parts[:1], Cursor: 1 << 30, Upto: math.MaxInt64, Rows: 1}),
		"keys":     q.ReadKeys(sqlbatch.KeyRead{Member: member, Parts: claim.Parts, Upto: math.MaxInt64, Rows: 100, Keys: keys}),
	}
	scan := regexp.MustCompile(`Seq Scan on chanq_orders |Bitmap Index Scan on ix_chanq_orders `)
	sort := regexp.MustCompile(`Sort Key: (q|q_1|w)\.(seq|id)`)
	walk := regexp.MustCompile(`Index (Only )?Scan using ix_chanq_orders on`)
	check := func(statistics string) {
		for name, st := range reads {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				plan := q.plan(conn, st, mode)
				message := fmt.Sprintf("%s, %s, %s:\n%s", name, statistics, mode, plan)
				require.Empty(t, scan.FindAllString(plan, -1), message)
				require.Empty(t, sort.FindAllString(plan, -1), message)
				require.NotEmpty(t, walk.FindAllString(plan, -1), message)
			}
		}
	}
	check("none")
	q.fillSlots(1000)
	q.exec(`DELETE FROM chanq_orders`)
	q.exec(`VACUUM ANALYZE chanq_orders`)
	check("empty")
	q.fillSlots(20_000)
	check("empty, though it is full")
	q.exec(`ANALYZE chanq_orders`)
	check("full")
	q.exec(`DELETE FROM chanq_orders`)
	check("full, though it is empty")
}
