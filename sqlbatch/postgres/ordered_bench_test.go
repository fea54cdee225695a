package postgres_test

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// BenchmarkKinds measures rounds of leases of a plain and of an ordered queue alternately, with a backlog of messages
// that are leased, or that were read. It also measures the CPU time of the server's process, if it runs on this
// machine.
func BenchmarkKinds(b *testing.B) {
	for _, backlog := range []int{0, 20_000} {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			kinds := []*kind{newKind(b, "plain", 0), newKind(b, "ordered", slotCount)}
			for _, k := range kinds {
				for range backlog / 500 {
					k.enqueue(b, 500)
				}
				for range backlog / 1000 {
					k.claim(b)
				}
				clear(k.spent)
				clear(k.cpu)
			}
			for i := 0; b.Loop(); i++ {
				for j := range kinds {
					k := kinds[(i+j)%len(kinds)]
					k.enqueue(b, 500)
					k.enqueue(b, 500)
					items := k.claim(b)
					require.Len(b, k.run(b, "ack1000", k.q.Ack(items)), 1, "all")
				}
			}
			for _, k := range kinds {
				for op, d := range k.spent {
					b.ReportMetric(float64(d.Microseconds())/float64(b.N), "µs/"+op+"-"+k.name)
					b.ReportMetric(float64(k.cpu[op].Microseconds())/float64(b.N), "cpu-µs/"+op+"-"+k.name)
				}
			}
		})
	}
}

// kind is a queue of one of the two kinds, and the time that its statements took.
type kind struct {
	name  string
	db    *sql.DB
	q     sqlbatch.Queue
	slots int
	reads sqlbatch.ReadParams
	heads sqlbatch.Heads
	next  uint64
	spent map[string]time.Duration
	cpu   map[string]time.Duration
	pid   int
}

func newKind(b *testing.B, name string, slots int) *kind {
	k := &kind{name: name, db: pgtest.Open(b), slots: slots, spent: map[string]time.Duration{}, cpu: map[string]time.Duration{}}
	k.db.SetMaxOpenConns(1)
	require.NoError(b, k.db.QueryRow(`SELECT pg_backend_pid()`).Scan(&k.pid))
	names := sqlbatch.Names{Queue: "orders", Slots: slots}
	testdb.MigrateTables(b, postgres.Dialect, k.db, names)
	k.q = postgres.Dialect.Queue(names)
	if slots > 0 {
		k.reads = readOf(b, k.db, k.q)
	}
	return k
}

func (k *kind) run(b *testing.B, op string, st sqlbatch.Statement) []sqlbatch.Item {
	start, used := time.Now(), k.used()
	items := itemsOf(b, k.db, st)
	k.spent[op] += time.Since(start)
	k.cpu[op] += k.used() - used
	return items
}

// used returns the CPU time that the process of the connection has used so far.
func (k *kind) used() (d time.Duration) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", k.pid))
	if err == nil {
		_, _ = fmt.Sscanf(string(stat), "%d", &d) // 0 if it is unknown
	}
	return d
}

func (k *kind) enqueue(b *testing.B, n int) {
	rows := make([]sqlbatch.Row, n)
	for i := range rows {
		k.next++
		binary.BigEndian.PutUint64(rows[i].ID[:], k.next)
		rows[i].Body = make([]byte, 200)
		if k.slots > 0 {
			rows[i].OrderKey = fmt.Sprint("customer ", k.next%10_000)
			rows[i].Slot = sqlbatch.SlotOf(rows[i].OrderKey, rows[i].ID, k.slots)
		}
	}
	k.run(b, "enqueue500", k.q.Enqueue(rows))
}

// claim leases a thousand messages, or reads them. The next claim begins behind them.
func (k *kind) claim(b *testing.B) (items []sqlbatch.Item) {
	st := k.q.Read(k.reads)
	if k.slots == 0 {
		c := claimOf(1000)
		c.Lease, c.Heads = time.Hour, k.heads
		st = k.q.Claim(c)
	}
	start, used := time.Now(), k.used()
	rows, err := k.db.Query(st.Text, st.Args...)
	require.NoError(b, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(b, err)
	var id sql.RawBytes
	var fence, due, seq int64
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(sql.RawBytes)
	}
	values[0], values[2], values[7] = &id, &fence, &due
	if k.slots > 0 {
		values[15] = &seq
	}
	for rows.Next() {
		require.NoError(b, rows.Scan(values...))
		if id == nil {
			continue // the last row
		}
		items = append(items, sqlbatch.Item{ID: [16]byte(id), Fence: fence})
		k.heads[-sqlbatch.PriorityLow].Due = due
		if k.slots > 0 {
			k.reads.From = max(k.reads.From, seq)
		}
	}
	require.NoError(b, rows.Err())
	k.spent["claim1000"] += time.Since(start)
	k.cpu["claim1000"] += k.used() - used
	require.Len(b, items, 1000)
	return items
}
