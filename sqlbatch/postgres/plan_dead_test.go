package postgres_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

// deadLetterMany puts rows into the dead-letter table.
func (q *serverQueue) deadLetterMany(rows int) {
	q.Helper()
	q.exec(`INSERT INTO chanq_orders__dead (id, enqueued_at, ended_at, cause, fence, attempts, priority, dedup_key, body)
SELECT gen_random_uuid(), i, i, 1, 1, 1, 0, 'k' || i, convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, $1) AS i`, rows)
}

// The cost of operations on single dead messages does not grow with their number. (A plan that was made while the table
// was one page reads all of it, until autovacuum has analyzed it.)
func TestDeadMessagesAreFoundByTheirIndexesWithAnyStatistics(t *testing.T) {
	q := newQueue(t)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	q.exec(`ALTER TABLE chanq_orders__dead SET (autovacuum_enabled = false)`)
	ids := make([][16]byte, 1000)
	for i := range ids {
		ids[i] = [16]byte{byte(i >> 8), byte(i)}
	}
	single := map[string]sqlbatch.Statement{
		"redrive ids": q.Redrive(0, ids, sqlbatch.Window{}),
		"redrive one": q.Redrive(0, ids[:1], sqlbatch.Window{}),
		"discard":     q.Discard(ids),
		"bodies":      q.Bodies(sqlbatch.Dead, ids),
		"get":         q.Get(ids[0]),
	}
	many := map[string]sqlbatch.Statement{ // an empty table has few of these
		"redrive": q.Redrive(100, nil, sqlbatch.Window{}),
		"purge":   q.Purge(sqlbatch.Dead, 100, sqlbatch.Window{}),
		"peek":    q.Peek(sqlbatch.Dead, 100, nil),
		"causes":  q.Causes(sqlbatch.Group{}, 100, 10_000),
		"walk":    q.Walk(nil, 100, sqlbatch.Window{}),
		"group":   q.Walk(&sqlbatch.Group{Cause: 1, Fingerprint: 1}, 100, sqlbatch.Window{}),
		"bare":    q.Walk(&sqlbatch.Group{Cause: 1}, 100, sqlbatch.Window{}),
	}
	scan := regexp.MustCompile(`Seq Scan on chanq_orders|Hash Join|Merge Join`)
	key := regexp.MustCompile(`using (pk_chanq_orders__dead|ix_chanq_orders__dead_\w+) on|Bitmap Index Scan on pk_chanq_orders__dead `)
	check := func(statistics string, uses map[string]sqlbatch.Statement) {
		for name, st := range uses {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				plan := q.plan(conn, st, mode)
				message := fmt.Sprintf("%s, %s, %s:\n%s", name, statistics, mode, plan)
				require.NotRegexp(t, scan, plan, message)
				require.Regexp(t, key, plan, message)
			}
		}
	}
	q.deadLetterMany(100_000)
	check("never analyzed", single)
	check("never analyzed", many)
	q.exec(`ANALYZE chanq_orders__dead`)
	check("up to date", single)
	check("up to date", many)
	q.exec(`TRUNCATE chanq_orders__dead`)
	q.exec(`VACUUM ANALYZE chanq_orders__dead`)
	q.deadLetterMany(20_000)
	check("from when it was empty", single)
	check("from when it was empty", many)
	q.exec(`DELETE FROM chanq_orders__dead WHERE ctid <> (SELECT max(ctid) FROM chanq_orders__dead)`)
	q.exec(`VACUUM ANALYZE chanq_orders__dead`)
	check("from when one was left, in a large file", single)
	q.deadLetterMany(20_000)
	check("from when one was left, in a large file, and full again", single)
}

func TestARedriveOfAFewReadsNoOtherDeadMessage(t *testing.T) {
	q := newQueue(t)
	q.deadLetterMany(100_000)
	var few [][16]byte
	for _, row := range q.rows(q.db, sqlbatch.Statement{Text: `SELECT uuid_send(id) FROM chanq_orders__dead WHERE ended_at % 1000 = 0`}) {
		few = append(few, suite.IDOf(row[0]))
	}
	require.Len(t, few, 100)
	tx := q.begin()
	before := q.readOfDead(tx)
	require.Len(t, q.rows(tx, q.Redrive(0, few, sqlbatch.Window{})), len(few))
	require.LessOrEqual(t, q.readOfDead(tx)-before, int64(6*len(few)))
}

// readOfDead returns how many rows of the dead-letter table, and entries of its indexes, a transaction has read.
func (q *serverQueue) readOfDead(on *sql.Tx) (n int64) {
	q.Helper()
	require.NoError(q, on.QueryRow(`SELECT sum(pg_stat_get_xact_tuples_returned(c)) FROM (
SELECT 'chanq_orders__dead'::regclass::oid UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = 'chanq_orders__dead'::regclass) AS t (c)`).Scan(&n))
	return n
}

// For any group the statement seeks the first and the last message, and counts up to its limit.
func TestCausesReadAFewPagesOfManyDead(t *testing.T) {
	q := newQueue(t)
	q.exec(`INSERT INTO chanq_orders__dead (id, enqueued_at, ended_at, cause, fingerprint, fence, attempts, priority, body)
SELECT gen_random_uuid(), i, i, 1 + i % 4, CASE i / 4 % 10 WHEN 0 THEN NULL ELSE 1::bigint << 56 | i / 4 % 10 END, 1, 1, 0, convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, 100000) AS i`)
	q.unseen() // the pages that a snapshot sees as they were are not read from the index alone
	q.exec(`VACUUM ANALYZE chanq_orders__dead`)
	require.Len(t, q.rows(q.db, q.Causes(sqlbatch.Group{}, 100, 1)), 40)
	require.LessOrEqual(t, q.buffers(q.Causes(sqlbatch.Group{}, 100, 1)), 40*4*4, "a seek to the group, to its first and its last message, and one entry")
	require.Equal(t, int64(2500), q.rows(q.db, q.Causes(sqlbatch.Group{}, 1, 10_000))[0][2])
	require.LessOrEqual(t, q.buffers(q.Causes(sqlbatch.Group{}, 1, 100)), 40)
	require.LessOrEqual(t, q.buffers(q.Walk(&sqlbatch.Group{Cause: 1, Fingerprint: 1<<56 + 4}, 10, sqlbatch.Window{After: 50_000})), 20)
}

// buffers returns how many pages a statement accesses.
func (q *serverQueue) buffers(st sqlbatch.Statement) int {
	q.Helper()
	var text []byte
	require.NoError(q, q.db.QueryRowContext(q.ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+st.Text, st.Args...).Scan(&text))
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(q, json.Unmarshal(text, &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}
