package sqlite_test

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

const slotCount = 64

var consumer = [16]byte{15: 9}

// newOrdered returns an ordered queue, and a read of all its slots by their owner.
func newOrdered(t testing.TB) (*table, sqlbatch.ReadParams) {
	t.Helper()
	table := newTable(t, sqlbatch.Names{Queue: "orders", Slots: slotCount})
	table.run(table.q.Join(sqlbatch.Consumer{ID: consumer, For: time.Hour}))
	r := sqlbatch.ReadParams{Consumer: consumer, Upto: math.MaxInt64, Rows: 1000, Behind: sqlbatch.MostWalked, Inline: sqlbatch.MaxBody}
	var all []int
	for slot := range slotCount {
		all = append(all, slot)
	}
	for _, row := range table.run(table.q.TakeSlots(consumer, 1, all)) {
		r.Slots = append(r.Slots, sqlbatch.OwnedSlot{Slot: int(row[0].(int64)), Fence: row[1].(int64)})
	}
	require.Len(t, r.Slots, slotCount)
	return table, r
}

// fillSlots stores n ready messages, a 64th in each slot.
func (s *table) fillSlots(n int) {
	s.Helper()
	s.run(sqlbatch.Statement{Text: `INSERT INTO chanq_orders (slot, order_key, body)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
SELECT i % 64, printf('key %d', i % 1000), x'00' FROM n`, Args: []any{n}})
}

func TestPlansOfOrderedQueues(t *testing.T) {
	table, _ := newOrdered(t)
	check := func(t *testing.T) {
		plans := map[string]string{}
		for name, st := range suite.Calls(table.q, "a") {
			if !suite.PlainOnly(name) {
				plans[name] = table.plan(st)
			}
		}
		for _, name := range []string{"browse-ready", "browse-scheduled", "browse-leased", "purge-ready", "purge-scheduled", "purge-leased"} {
			require.Contains(t, plans[name], "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", "%s:\n%s", name, plans[name])
		}
		const number = "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
		for name, walks := range map[string]int{"read": 3, "read-one": 3, "refill": 1, "refill-one": 1} {
			require.Equal(t, walks, strings.Count(plans[name], "SEARCH q "+number), "%s:\n%s", name, plans[name])
		}
		for _, name := range []string{"read", "refill", "fetch", "look-ordered", "mark-ordered", "release-ordered"} {
			require.NotContains(t, plans[name], "SCAN q", "%s:\n%s", name, plans[name])
			require.NotContains(t, plans[name], "USE TEMP B-TREE", "%s:\n%s", name, plans[name])
		}
		for _, name := range []string{"fetch", "look-ordered", "mark-ordered", "release-ordered"} {
			require.Contains(t, plans[name], "sqlite_autoindex_chanq_orders_1 (id=?)", "%s:\n%s", name, plans[name])
		}
		require.Contains(t, plans["held-keys"], "ix_chanq_orders__dead_key (slot=? AND order_key=?)", plans["held-keys"])
		require.Contains(t, plans["reach"], "USING INTEGER PRIMARY KEY (rowid>?)", plans["reach"])
		for _, name := range []string{"ack", "archive", "extend", "nack", "release", "dead-letter"} {
			require.Contains(t, plans[name], "sqlite_autoindex_chanq_orders_1 (id=?)", "%s:\n%s", name, plans[name])
		}
	}
	t.Run("rows=0", check)
	table.run(sqlbatch.Statement{Text: "ANALYZE"})
	t.Run("rows=0/analyzed", check)
	table.fillSlots(100_000)
	t.Run("rows=100000/analyzed-when-empty", check)
	table.run(sqlbatch.Statement{Text: "ANALYZE"})
	t.Run("rows=100000/analyzed", check)
}

// BenchmarkKinds runs the statements of plain and ordered in-memory queues alternately, with a backlog that is leased,
// or was read. It measures the CPU time of the thread, if the system has it: other load changes it less than the
// elapsed time.
func BenchmarkKinds(b *testing.B) {
	const n = 500
	for _, backlog := range []int{0, 20_000} {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			runtime.LockOSThread()
			plain := newTable(b, sqlbatch.Names{Queue: "orders"})
			ordered, r := newOrdered(b)
			r.Rows = n
			tables := map[string]*table{"plain": plain, "ordered": ordered}
			spent, ids := map[string]time.Duration{}, map[string]uint64{}
			heads := sqlbatch.Heads{}
			stmts := map[string]map[string]*sql.Stmt{"plain": {}, "ordered": {}}
			var run func(op, kind string, st sqlbatch.Statement) []sqlbatch.Item
			run = func(op, kind string, st sqlbatch.Statement) (items []sqlbatch.Item) {
				for _, prior := range st.Prior {
					run(op, kind, prior)
				}
				stmt := stmts[kind][st.Text]
				if stmt == nil {
					var err error
					stmt, err = tables[kind].conn.PrepareContext(b.Context(), st.Text)
					require.NoError(b, err)
					stmts[kind][st.Text] = stmt
				}
				began := used()
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
					if len(values) > 14 { // of a read
						if values[0] == nil {
							continue
						}
						r.From = max(r.From, values[15].(int64))
					}
					item := sqlbatch.Item{ID: [16]byte(values[0].([]byte))}
					if len(values) > 2 {
						item.Fence = values[2].(int64)
					}
					if len(values) == 13 {
						heads[-sqlbatch.PriorityLow].Due = values[7].(int64)
					}
					items = append(items, item)
				}
				require.NoError(b, rows.Close())
				spent[op+kind] += used() - began
				return items
			}
			enqueue := func(kind string) {
				rows := make([]sqlbatch.Row, n)
				for i := range rows {
					ids[kind]++
					rows[i].Body = make([]byte, 200)
					binary.BigEndian.PutUint64(rows[i].ID[:], ids[kind])
					if kind == "ordered" {
						rows[i].OrderKey = fmt.Sprint("customer ", ids[kind]%10_000)
						rows[i].Slot = sqlbatch.SlotOf(rows[i].OrderKey, rows[i].ID, slotCount)
					}
				}
				run("enqueue-", kind, tables[kind].q.Enqueue(rows))
			}
			claim := func(kind string) []sqlbatch.Item {
				if kind == "ordered" {
					return run("claim-", kind, ordered.q.Read(r))
				}
				p := claimOf(n, time.Hour)
				p.Heads = heads
				return run("claim-", kind, plain.q.Claim(p))
			}
			for _, kind := range []string{"plain", "ordered"} {
				for range backlog / n {
					enqueue(kind)
				}
				for range backlog / n {
					require.Len(b, claim(kind), n)
				}
			}
			clear(spent)
			for b.Loop() {
				for _, kind := range []string{"plain", "ordered"} {
					enqueue(kind)
					items := claim(kind)
					require.Len(b, items, n)
					run("ack-", kind, tables[kind].q.Ack(items))
				}
			}
			for op, d := range spent {
				b.ReportMetric(float64(d.Microseconds())/float64(b.N), "cpu-µs/"+op)
			}
		})
	}
}

// used returns the CPU time that this thread has used so far.
func used() (d time.Duration) {
	if stat, err := os.ReadFile("/proc/thread-self/schedstat"); err == nil {
		_, _ = fmt.Sscanf(string(stat), "%d", &d)
	}
	return d
}
