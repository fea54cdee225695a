package postgres_test

import (
	"bytes"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// fill puts rows of all three kinds into the table, a third each, in every lane.
func (q *serverQueue) fill(rows int) {
	q.Helper()
	q.exec(`INSERT INTO chanq_orders (id, priority, due_at, lease_until, enqueued_at, fence, attempts, leased_by, body)
SELECT gen_random_uuid(), i % 4 - 1, extract(epoch FROM now()) * 1000 + CASE i % 3 WHEN 2 THEN 3600000 + i ELSE -i END,
       CASE i % 3 WHEN 1 THEN extract(epoch FROM now()) * 1000 + 3600000 ELSE 0 END, 0, 1, 1,
       CASE i % 3 WHEN 1 THEN gen_random_uuid() END, convert_to(repeat('x', 100), 'UTF8')
FROM generate_series(1, $1) AS i`, rows)
}

// plan returns how a statement runs: with its values known to the planner, or with a generic plan.
func (q *serverQueue) plan(conn *sql.Conn, st sqlbatch.Statement, mode string) string {
	q.Helper()
	run := func(text string) {
		_, err := conn.ExecContext(q.ctx, text)
		require.NoError(q, err, text)
	}
	run(`SET plan_cache_mode = ` + mode)
	run(`PREPARE explained AS ` + st.Text)
	var values []string
	for _, arg := range st.Args {
		switch v := arg.(type) {
		case string:
			values = append(values, "'"+v+"'")
		case []byte:
			values = append(values, `'\x`+hex.EncodeToString(v)+"'")
		case nil:
			values = append(values, "NULL")
		default:
			values = append(values, fmt.Sprint(v))
		}
	}
	text := `EXPLAIN EXECUTE explained`
	if len(values) > 0 {
		text += ` (` + strings.Join(values, ", ") + `)`
	}
	rows, err := conn.QueryContext(q.ctx, text)
	require.NoError(q, err, text)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		require.NoError(q, rows.Scan(&line))
		plan.WriteString(line + "\n")
	}
	require.NoError(q, rows.Err())
	run(`DEALLOCATE explained`)
	return plan.String()
}

// keda is the query of docs/guides/sql.md that counts how many consumers a queue needs.
func keda(t *testing.T, queue string) sqlbatch.Statement {
	t.Helper()
	document, err := os.ReadFile("../../docs/guides/sql.md")
	require.NoError(t, err)
	query := regexp.MustCompile(`(?m)^    query: (SELECT count.* FROM chanq_` + queue + ` .*)$`).FindSubmatch(document)
	require.NotNil(t, query)
	return sqlbatch.Statement{Text: strings.ReplaceAll(string(query[1]), "chanq_"+queue, "chanq_orders")}
}

// Statistics of a queue's table are never right; these are the worst cases.
func TestPlansUseTheIndexesWithAnyStatistics(t *testing.T) {
	q := newQueue(t)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	const n = 1000
	items := make([]sqlbatch.Item, n)
	nacks := make([]sqlbatch.NackItem, n)
	deadLetters := make([]sqlbatch.DeadLetterItem, n)
	ids := make([][16]byte, n)
	for i := range items {
		items[i] = sqlbatch.Item{ID: [16]byte{byte(i >> 8), byte(i)}, Fence: 1}
		nacks[i].Item, deadLetters[i].Item, ids[i] = items[i], items[i], items[i].ID
	}
	claim := q.Claim(claimOf(n))
	for _, text := range postgres.Dialect.View(sqlbatch.Names{Queue: "orders"}) {
		q.exec(text)
	}
	type use struct {
		st    sqlbatch.Statement
		lanes int // scans of a lane of the claim index
		keys  int // probes of the primary key
	}
	uses := map[string]use{
		"claim":            {claim, 4, 1},
		"claim one":        {q.Claim(sqlbatch.ClaimParams{Rows: 1, Heads: suite.HeadsAt(1, 2, 3, 1<<50)}), 4, 1},
		"next due":         {q.NextDue(sqlbatch.Heads{}), 1, 0},
		"rescan":           {q.Rescan(), 4, 0},
		"rescue":           {q.Rescue(sqlbatch.RescueParams{MaxCrashes: 8}), 1, 2},
		"cancel":           {q.Cancel(ids), 0, 1},
		"run now":          {q.RunNow(ids), 0, 1},
		"find":             {q.Find(ids, []string{"k"}), 0, 1},
		"look":             {q.Look(ids), 0, 1},
		"get":              {q.Get(ids[0]), 0, 1},
		"stats":            {q.Stats(10000), 3, 0},
		"empty":            {q.Empty(), 0, 1},
		"browse ready":     {q.Browse(sqlbatch.Ready, n, nil, sqlbatch.Filter{}), 4, 1},
		"browse scheduled": {q.Browse(sqlbatch.Scheduled, n, nil, sqlbatch.Filter{}), 4, 1},
		"browse leased":    {q.Browse(sqlbatch.Leased, n, nil, sqlbatch.Filter{}), 4, 1},
		"purge ready":      {q.Purge(sqlbatch.Ready, n, sqlbatch.Window{}), 1, 1},
		"purge scheduled":  {q.Purge(sqlbatch.Scheduled, n, sqlbatch.Window{}), 1, 1},
		"purge leased":     {q.Purge(sqlbatch.Leased, n, sqlbatch.Window{}), 1, 1},
		"view":             {sqlbatch.Statement{Text: `SELECT state, id, body FROM chanq_orders__messages WHERE state <> 'ready'`}, 1, 0},
		"keda":             {keda(t, "orders"), 1, 0},
		"redrive":          {q.Redrive(n, nil, sqlbatch.Window{}), 0, 1},
		"redrive ids":      {q.Redrive(0, ids, sqlbatch.Window{}), 0, 1},
	}
	for form, q := range map[string]struct {
		sqlbatch.Queue
		keys int
	}{"": {q, 1}, " in a transaction": {q.InTx(), 1}, " skipping": {q.SkipLocked(), 2}} {
		uses["ack"+form] = use{q.Ack(items), 0, q.keys}
		uses["archive"+form] = use{q.Archive(items), 0, q.keys}
		uses["nack"+form] = use{q.Nack(nacks), 0, q.keys}
		uses["release"+form] = use{q.Release(suite.Releases(items)), 0, q.keys}
		uses["dead-letter"+form] = use{q.DeadLetter(deadLetters), 0, q.keys}
		uses["extend"+form] = use{q.Extend(suite.Consumer, items, time.Minute), 0, q.keys}
	}
	lane := regexp.MustCompile(`Index (Only )?Scan using ix_chanq_orders__due on`)
	key := regexp.MustCompile(`Index (?:Only )?Scan (?:Backward )?using pk_chanq_orders on|Bitmap Index Scan on pk_chanq_orders `)
	scan := regexp.MustCompile(`Seq Scan on chanq_orders |Bitmap Heap Scan on chanq_orders q|Hash|Merge Join|Memoize`)
	sorted := regexp.MustCompile(`Sort Key: q(_1)?\.`)
	check := func(statistics string) {
		for name, use := range uses {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				plan := q.plan(conn, use.st, mode)
				message := fmt.Sprintf("%s, %s, %s:\n%s", name, statistics, mode, plan)
				require.NotRegexp(t, scan, plan, message)
				require.Len(t, lane.FindAllString(plan, -1), use.lanes, message)
				require.Len(t, key.FindAllString(plan, -1), use.keys, message)
				switch {
				case strings.HasPrefix(name, "browse"):
				case strings.HasPrefix(name, "redrive"), name == "view": // these sort the dead messages
					require.NotRegexp(t, sorted, plan, message)
				default:
					require.NotContains(t, plan, "Sort", message)
				}
			}
		}
	}

	q.exec(`ALTER TABLE chanq_orders SET (autovacuum_enabled = false)`)
	q.fill(100_000)
	check("never analyzed")
	q.exec(`ANALYZE chanq_orders`)
	check("up to date")
	q.exec(`UPDATE chanq_orders SET due_at = due_at + 7200000 WHERE due_at < extract(epoch FROM now()) * 1000`)
	q.exec(`ANALYZE chanq_orders`)
	q.fill(20_000)
	check("from when nothing was ready")
	q.exec(`TRUNCATE chanq_orders`)
	q.exec(`ANALYZE chanq_orders`)
	q.fill(100_000)
	check("from when it was empty")
	q.exec(`DELETE FROM chanq_orders`)
	q.exec(`VACUUM ANALYZE chanq_orders`)
	// A plan from such a moment lasts until the next vacuum, while the table fills. All indexes look like one page, so a lane might be
	// sorted. But no row may be searched in the whole claim index, or the whole table.
	checkKeys := func(statistics string) {
		for name, use := range uses {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				plan := q.plan(conn, use.st, mode)
				message := fmt.Sprintf("%s, %s, %s:\n%s", name, statistics, mode, plan)
				require.NotContains(t, plan, "Seq Scan on chanq_orders ", message)
				require.Len(t, key.FindAllString(plan, -1), use.keys, message)
			}
		}
	}
	checkKeys("from when it was empty, in a file that was not")
	q.fill(100_000)
	checkKeys("from when it was empty, in a file that was not, and is full again")
	q.exec(`ANALYZE chanq_orders`)
	_, err = conn.ExecContext(q.ctx, `SET random_page_cost = 20`)
	require.NoError(t, err)
	delete(uses, "stats")  // an operator's statement, which may sort there
	delete(uses, "keda")   // with 10,000 rows per lane, which may be sorted there: see docs/guides/sql.md
	delete(uses, "rescan") // may sort if all due messages are leased: it is not urgent
	check("up to date, on a slow disk")
}

// Priorities depend on an Append that runs its parts in the order of the text, one after the other, never in parallel.
func TestPrioritiesAreReadInTheirOrder(t *testing.T) {
	q := newQueue(t)
	q.fill(10_000)
	q.exec(`ANALYZE chanq_orders`)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(q.ctx, `SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0`)
	require.NoError(t, err)
	lane := regexp.MustCompile(`using ix_chanq_orders__due on .*\n +Index Cond: \(\(priority = '?(-?\d)`)
	for name, st := range map[string]sqlbatch.Statement{
		"claim":            q.Claim(claimOf(100)),
		"browse ready":     q.Browse(sqlbatch.Ready, 100, nil, sqlbatch.Filter{}),
		"browse leased":    q.Browse(sqlbatch.Leased, 100, nil, sqlbatch.Filter{}),
		"browse scheduled": q.Browse(sqlbatch.Scheduled, 100, nil, sqlbatch.Filter{}),
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			plan := q.plan(conn, st, mode)
			var lanes []string
			for _, found := range lane.FindAllStringSubmatch(plan, -1) {
				lanes = append(lanes, found[1])
			}
			require.Equal(t, []string{"2", "1", "0", "-1"}, lanes, "%s:\n%s", name, plan)
			require.NotContains(t, plan, "Parallel", name)
		}
	}
}

// A page begins at its place: it reads the rows that it shows, and a few entries more, even among messages that are all due at one time.
func TestAPageReadsNothingBeforeItsCursor(t *testing.T) {
	q := newQueue(t)
	for state, in := range map[sqlbatch.State]int{sqlbatch.Ready: -3_600_000, sqlbatch.Scheduled: 3_600_000, sqlbatch.Leased: -3_600_000} {
		q.exec(`DELETE FROM chanq_orders`)
		q.many(4000, state, in)
		q.exec(`UPDATE chanq_orders SET due_at = (SELECT min(due_at) FROM chanq_orders)`)
		rows := q.rows(q.db, q.Browse(state, 900, nil, sqlbatch.Filter{}))
		last := rows[len(rows)-1]
		place := &sqlbatch.Place{Priority: sqlbatch.PriorityUrgent, At: last[6].(int64), ID: suite.IDOf(last[1])}
		require.Len(t, q.rows(q.db, q.Browse(state, 10, place, sqlbatch.Filter{})), 10)
		require.LessOrEqual(t, q.read(q.Browse(state, 10, place, sqlbatch.Filter{})), int64(40), state)
	}
}

// However many messages an operator deletes, and even if all are due at one time, a step reads the rows that it deletes, and no entries
// of deleted rows, which stay until a vacuum.
func TestAStepOfAPurgeReadsNothingOfTheStepsBefore(t *testing.T) {
	const step, steps = 500, 12
	for state, in := range map[sqlbatch.State]int{sqlbatch.Ready: -3_600_000, sqlbatch.Scheduled: 3_600_000, sqlbatch.Leased: -3_600_000} {
		q := newQueue(t)
		q.exec(`ALTER TABLE chanq_orders SET (autovacuum_enabled = off)`)
		q.many(4*step*steps, state, in)
		q.exec(`UPDATE chanq_orders SET due_at = (SELECT min(due_at) FROM chanq_orders)`)
		q.exec(`VACUUM chanq_orders`)
		held := q.begin() // with a snapshot open, deleted rows can be neither cleaned up nor marked
		_, err := held.Exec(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
		require.NoError(t, err)
		require.Len(t, q.rows(held, q.Clock()), 1)
		w := sqlbatch.Window{}
		for range steps {
			require.LessOrEqual(t, q.read(q.Purge(state, step, w)), int64(3*step), state)
			rows := q.rows(q.db, q.Purge(state, step, w))
			require.Len(t, rows, step)
			for _, row := range rows {
				if id := suite.IDOf(row[0]); bytes.Compare(id[:], w.AfterID[:]) > 0 {
					w.After, w.AfterID = row[1].(int64), id
				}
			}
		}
		require.NoError(t, held.Rollback())
	}
}

// Locks are taken in the order of the list because of the shape of the plan.
func TestSettlesWalkTheirListInOrder(t *testing.T) {
	q := newQueue(t)
	q.fill(10_000)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	items := []sqlbatch.Item{{ID: id(1), Fence: 1}, {ID: id(2), Fence: 1}}
	for name, st := range map[string]sqlbatch.Statement{
		"ack": q.Ack(items), "extend": q.Extend(suite.Consumer, items, time.Minute), "nack": q.Nack([]sqlbatch.NackItem{{Item: items[0]}}),
	} {
		plan := q.plan(conn, st, "force_generic_plan")
		loop, list, probe := strings.Index(plan, "Nested Loop"), strings.Index(plan, "Function Scan"), strings.Index(plan, "Index Scan using pk_chanq_orders")
		require.True(t, 0 <= loop && loop < list && list < probe, "%s:\n%s", name, plan)
	}
}

// many inserts live messages of a state, in all lanes, the first due in the given ms.
func (q *serverQueue) many(n int, state sqlbatch.State, in int) {
	q.Helper()
	holder, until := "NULL", int64(0)
	if state == sqlbatch.Leased {
		holder, until = "gen_random_uuid()", q.now()+3_600_000
	}
	q.exec(`INSERT INTO chanq_orders (priority, due_at, lease_until, attempts, leased_by, body)
SELECT i % 4 - 1, $2::bigint + i, $3::bigint, 1, `+holder+`, '' FROM generate_series(1, $1::int) AS i`, n, q.now()+int64(in), until)
}

// read returns how many entries of the claim index and the primary key a statement reads.
func (q *serverQueue) read(st sqlbatch.Statement) (n int64) {
	q.Helper()
	tx := q.begin()
	defer tx.Rollback()
	count := func() (n int64) {
		require.NoError(q, tx.QueryRow(`SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid = 'chanq_orders'::regclass`).Scan(&n))
		return n
	}
	before := count()
	q.rows(tx, st)
	return count() - before
}

// Leased messages are before ready ones.
func TestCountsEachStateUpToTheLimitIndependently(t *testing.T) {
	const limit, hour = 100, 3_600_000
	states := []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased}
	place := map[sqlbatch.State]int{sqlbatch.Ready: -hour, sqlbatch.Scheduled: hour, sqlbatch.Leased: -3 * hour}
	behind := map[sqlbatch.State]int{sqlbatch.Leased: 5 * hour / 2} // the ready ones
	for i, few := range states {
		q := newQueue(t)
		q.many(10, few, place[few])
		for round := range 2 {
			for j, state := range states {
				if j != i {
					q.many(2000+4000*round, state, place[state]+round*behind[state])
				}
			}
			want := []any{int64(limit), int64(limit), int64(limit)}
			want[i] = int64(10)
			require.Equal(t, want, q.rows(q.db, q.Stats(limit))[0][:3], few)
			read := q.read(q.Stats(limit))
			require.LessOrEqual(t, read, int64(4*(10+2+1)*limit), few)
		}
	}
}

// TestFrequentStatementsOfADeepQueueAreNotCompiled: the server compiles a plan whose estimated cost is above jit_above_cost, which takes
// a hundred times as long as running it.
func TestFrequentStatementsOfADeepQueueAreNotCompiled(t *testing.T) {
	q := newQueue(t)
	q.fill(3000)
	q.exec(`ANALYZE chanq_orders`)
	q.exec(`UPDATE pg_class SET reltuples = 1e8 WHERE oid = 'chanq_orders'::regclass`)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	total := regexp.MustCompile(`cost=[0-9.]+\.\.([0-9.]+)`)
	for name, st := range map[string]sqlbatch.Statement{
		"claim": q.Claim(claimOf(1000)), "next due": q.NextDue(sqlbatch.Heads{}), "rescan": q.Rescan(),
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			plan := q.plan(conn, st, mode)
			cost, err := strconv.ParseFloat(total.FindStringSubmatch(plan)[1], 64)
			require.NoError(t, err)
			t.Log(name, mode, cost)
			require.Less(t, cost, 100_000.0, "%s with %s:\n%s", name, mode, plan)
		}
	}
}
