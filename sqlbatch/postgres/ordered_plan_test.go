package postgres_test

import (
	"database/sql"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// slotCount is how many slots the ordered queue of these tests has.
const slotCount = 64

// newOrdered returns an ordered queue, and a read of all its slots by their owner.
func newOrdered(t *testing.T) (*serverQueue, sqlbatch.ReadParams) {
	q := newQueueOf(t, sqlbatch.Names{Queue: "orders", Slots: slotCount})
	return q, readOf(t, q.db, q.Queue)
}

// readOf makes the consumer take all slots, and returns a read of all their messages.
func readOf(t testing.TB, db *sql.DB, q sqlbatch.Queue) sqlbatch.ReadParams {
	t.Helper()
	rows := func(st sqlbatch.Statement) [][]any {
		rows, err := testdb.Rows(t.Context(), db, st)
		require.NoError(t, err)
		return rows
	}
	rows(q.Join(sqlbatch.Consumer{ID: consumer, Name: "m", Host: "h", For: time.Hour}))
	r := sqlbatch.ReadParams{Consumer: consumer, Upto: math.MaxInt64, Rows: 1000, Behind: sqlbatch.MostWalked, Inline: 1000}
	var all []int
	for slot := range slotCount {
		all = append(all, slot)
	}
	for _, row := range rows(q.TakeSlots(consumer, 1, all)) {
		r.Slots = append(r.Slots, sqlbatch.OwnedSlot{Slot: int(row[0].(int64)), Fence: row[1].(int64)})
	}
	require.Len(t, r.Slots, slotCount)
	return r
}

// fillSlots puts rows into all slots: ready ones, some that wait for a retry, and some that are leased.
func (q *serverQueue) fillSlots(rows int) {
	q.Helper()
	q.exec(`INSERT INTO chanq_orders (id, slot, seq, order_key, due_at, lease_until, enqueued_at, attempts, leased_by, body)
SELECT gen_random_uuid(), i % 64, (nextval('chanq_orders__seq') << 20) + 1, 'k' || i % 1000, extract(epoch FROM now()) * 1000 + CASE i % 11 WHEN 2 THEN 3600000 ELSE -1000 END,
       CASE i % 11 WHEN 1 THEN extract(epoch FROM now()) * 1000 + 3600000 ELSE 0 END, 0, 1,
       CASE i % 11 WHEN 1 THEN gen_random_uuid() END, convert_to(repeat('x', 100), 'UTF8')
FROM generate_series(1, $1) AS i`, rows)
}

// With many keys and few rows the planner would make the keys of a refill a join, which returns the rows in another order.
func TestARefillOfManyKeysLeavesOutNoRowUpToItsEnd(t *testing.T) {
	q, read := newOrdered(t)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	q.exec(`ALTER TABLE chanq_orders SET (autovacuum_enabled = false)`)
	q.fillSlots(10_000)
	q.exec(`ANALYZE chanq_orders`)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		_, err := conn.ExecContext(q.ctx, `SET plan_cache_mode = `+mode)
		require.NoError(t, err)
		for _, n := range []int{100, 400, 900} {
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprint("k", 999-i)
			}
			rows := q.rows(conn, q.Refill(sqlbatch.ReadParams{Consumer: consumer, Slots: read.Slots, Upto: math.MaxInt64, Rows: n, Keys: keys, Inline: 1000}))
			require.Len(t, rows, n+1)
			var expected int
			require.NoError(t, conn.QueryRowContext(q.ctx, `SELECT count(*) FROM chanq_orders WHERE order_key = ANY ($1) AND seq <= $2`, keys, rows[n][7]).Scan(&expected))
			require.Equal(t, expected, n, mode)
		}
	}
}

func TestPlansOfOrderedQueuesUseTheIndexesWithAnyStatistics(t *testing.T) {
	q, read := newOrdered(t)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	items := make([]sqlbatch.Item, 1000)
	deadLetters := make([]sqlbatch.DeadLetterItem, len(items))
	for i := range items {
		items[i] = sqlbatch.Item{ID: [16]byte{byte(i >> 8), byte(i)}, Fence: 1}
		deadLetters[i].Item = items[i]
	}
	for _, text := range postgres.Dialect.View(sqlbatch.Names{Queue: "orders", Slots: slotCount}) {
		q.exec(text)
	}
	type use struct {
		st   sqlbatch.Statement
		keys int // probes of the primary key
		seqs int // scans of the index (seq, slot)
	}
	own, marks, ids := read.Slots, make([]sqlbatch.MarkItem, len(items)), make([][16]byte, len(items))
	for i := range items {
		marks[i].Item, ids[i] = items[i], items[i].ID
	}
	read.Cursor, read.Keys = 1<<30, []string{"k1", "k2"}
	catchUp, fewRows := read, read
	catchUp.Cursor, catchUp.Upto, catchUp.Rows, catchUp.Old, catchUp.Keys = 1<<50, 1<<50, 0, math.MaxInt64, nil
	fewRows.Slots, fewRows.Rows = own[:1], 1
	uses := map[string]use{
		"read":                 {q.Read(read), 0, 3},
		"read few":             {q.Read(fewRows), 0, 3},
		"catch up":             {q.Read(catchUp), 0, 3},
		"refill":               {q.Refill(sqlbatch.ReadParams{Consumer: consumer, Slots: own, Upto: math.MaxInt64, Rows: 100, Keys: read.Keys, Inline: 1000}), 1, 1},
		"fetch":                {q.Fetch(consumer, own, ids), 1, 0},
		"look ordered":         {q.LookOrdered(consumer, own, ids), 1, 0},
		"mark ordered":         {q.MarkOrdered(consumer, marks), 2, 0},
		"release ordered":      {q.ReleaseOrdered(consumer, suite.Releases(items), false), 2, 0},
		"slot stats":           {q.SlotStats(100), 0, 1},
		"stats":                {q.Stats(1000), 0, 1},
		"extend":               {q.Extend(suite.Consumer, items, time.Minute), 1, 0},
		"dead-letter":          {q.DeadLetter(deadLetters), 1, 0},
		"dead-letter skipping": {q.SkipLocked().DeadLetter(deadLetters), 2, 0},
		"archive":              {q.Archive(items), 1, 0},
		"reach":                {q.Reach(0, 1000), 0, 1},
		"view":                 {sqlbatch.Statement{Text: `SELECT state, id, body FROM chanq_orders__messages WHERE state <> 'ready'`}, 0, 1},
		"browse ready":         {q.Browse(sqlbatch.Ready, 1000, nil, sqlbatch.Filter{}), 1, 1},
		"browse scheduled":     {q.Browse(sqlbatch.Scheduled, 1000, nil, sqlbatch.Filter{}), 1, 1},
		"browse leased":        {q.Browse(sqlbatch.Leased, 1000, nil, sqlbatch.Filter{}), 1, 1},
		"purge ready":          {q.Purge(sqlbatch.Ready, 1000, sqlbatch.Window{}), 1, 1},
		"purge scheduled":      {q.Purge(sqlbatch.Scheduled, 1000, sqlbatch.Window{}), 1, 1},
		"purge leased":         {q.Purge(sqlbatch.Leased, 1000, sqlbatch.Window{}), 1, 1},
	}
	reads := map[string]use{}
	for _, name := range []string{"read", "read few", "catch up"} {
		reads[name] = uses[name]
	}
	seq := regexp.MustCompile(`Index (Only )?Scan using ix_chanq_orders__seq on`)
	key := regexp.MustCompile(`Index Scan using pk_chanq_orders on|Bitmap Index Scan on pk_chanq_orders `)
	scan := regexp.MustCompile(`Seq Scan on chanq_orders |Bitmap Index Scan on ix_chanq_orders__seq `)
	sort := regexp.MustCompile(`Sort Key: (q(_1)?|w)\.`) // of the rows that are walked
	check := func(statistics string, uses map[string]use, full bool) {
		for name, use := range uses {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				plan := q.plan(conn, use.st, mode)
				message := fmt.Sprintf("%s, %s, %s:\n%s", name, statistics, mode, plan)
				require.Len(t, key.FindAllString(plan, -1), use.keys, message)
				if !full {
					require.NotContains(t, plan, "Seq Scan on chanq_orders q", message)
					continue
				}
				require.Len(t, seq.FindAllString(plan, -1), use.seqs, message)
				require.NotRegexp(t, scan, plan, message)
				if !strings.HasPrefix(name, "browse") { // browse sorts the rows that it has chosen
					require.NotRegexp(t, sort, plan, message)
				}
			}
		}
	}
	q.exec(`ALTER TABLE chanq_orders SET (autovacuum_enabled = false)`)
	check("never analyzed, without a row", reads, false)
	q.fillSlots(100_000)
	check("never analyzed", uses, true)
	q.exec(`ANALYZE chanq_orders`)
	check("up to date", uses, true)
	q.exec(`TRUNCATE chanq_orders`)
	q.exec(`ANALYZE chanq_orders`)
	q.fillSlots(100_000)
	check("from when it was empty", uses, true)
	q.exec(`DELETE FROM chanq_orders`)
	q.exec(`VACUUM ANALYZE chanq_orders`)
	check("from when it was empty, in a file that was not", uses, false)
	q.fillSlots(100_000)
	check("from when it was empty, in a file that was not, and is full again", uses, false)
	q.exec(`ANALYZE chanq_orders`)
	_, err = conn.ExecContext(q.ctx, `SET random_page_cost = 20`)
	require.NoError(t, err)
	check("up to date, on a slow disk", uses, true)
}
