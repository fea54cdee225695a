package postgres

import "github.com/chanq/chanq/sqlbatch"

// The tables of an ordered queue, and the statements of operators for it. They use the order of seq.

// numbersText: with a cache, a session would get numbers that other sessions have passed.
const numbersText = `CREATE SEQUENCE IF NOT EXISTS {numbers} AS bigint MINVALUE 1 MAXVALUE 8796093022207 CACHE 1`

// seqIndexText is the index that reads walk, in place of dueIndexText. It has no column that settles or marks change,
// neither the end of a lease nor the time of a retry.
var seqIndexText = indexText("{'by seq'}", newTableText, `CREATE INDEX {by seq} ON {live} (seq, slot)`)

// deadLineIndexText finds the keys that dead messages hold.
var deadLineIndexText = indexText("{'dead line'}", `CREATE INDEX {dead line} ON {dead} (slot, order_key) WHERE order_key IS NOT NULL`)

// behindNumber is a range of the index (seq, slot): all entries behind a seq. See inRange.
func behindNumber(seq string) string { return "(q.seq, q.slot) > (" + seq + ", 32767::smallint)" }

// reachText reads only the index, if a vacuum has run. The two limits are for the planner: see chosen.
var reachText = `SELECT coalesce(max(CASE WHEN e.n >= $2::bigint THEN e.seq END), 9223372036854775807) AS seq
FROM (
  SELECT l.seq, row_number() OVER () AS n FROM (
    SELECT q.seq FROM {live} AS q
    WHERE ` + behindNumber("$1::bigint") + `
    ORDER BY q.seq LIMIT ` + mostWalked + `) AS l
  LIMIT (SELECT $2::bigint)) AS e`

func (q *queue) Reach(after int64, rows int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reach, Args: []any{after, int64(min(rows, sqlbatch.MostWalked))}}
}

// seqs selects the first ids of a state behind $2 and up to a seq. lock is the clause that locks their rows, or "".
func seqs(condition, upto, lock string) string {
	return `SELECT f.id FROM (
    SELECT q.id FROM {live} AS q
    WHERE ` + behindNumber("$2::bigint") + ` AND q.seq <= (SELECT ` + upto + `::bigint) AND ` + condition + `
    ORDER BY q.seq LIMIT {rows}` + lock + `) AS f
  LIMIT (SELECT n FROM t)`
}

// peekSeqText takes its filter for a condition that almost all rows meet, like that of a state. The slots, from $6 to $7, are a range of the
// index: rows of other slots are not read.
func peekSeqText(condition string) string {
	condition += ` AND q.slot BETWEEN $6::smallint AND $7::smallint AND ` + not(`$4::bytea <> ''::bytea AND convert_to(q.type, {encoding}) IS DISTINCT FROM $4::bytea`) +
		` AND ` + not(`$5::bytea <> ''::bytea AND convert_to(q.order_key, {encoding}) IS DISTINCT FROM $5::bytea`)
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
),
chosen AS MATERIALIZED (
  ` + seqs(condition, "$3", "") + `
)
SELECT ` + liveColumns + `
FROM chosen AS c
JOIN {live} AS q ON q.id = ANY (ARRAY[c.id])
ORDER BY q.seq`
}

func purgeSeqText(condition string) string {
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
)
DELETE FROM {live}
WHERE id = ANY (ARRAY(
  ` + seqs(condition, "$4", " FOR UPDATE SKIP LOCKED") + `))
RETURNING uuid_send(id), seq`
}

// seqStates has the condition of each state, and of the time that Window.Before bounds, which is $3. The planner
// estimates that almost all rows meet each condition.
var seqStates = map[sqlbatch.State]struct{ condition, before string }{
	sqlbatch.Ready:     {not("q.due_at > (SELECT now FROM t)") + ` AND ` + not("q.lease_until > (SELECT now FROM t)"), ` AND ` + not("q.due_at >= (SELECT $3::bigint)")},
	sqlbatch.Scheduled: {not("q.due_at <= (SELECT now FROM t)") + ` AND ` + not("q.lease_until > (SELECT now FROM t)"), ` AND ` + not("q.enqueued_at >= (SELECT $3::bigint)")},
	sqlbatch.Leased:    {not("q.due_at > (SELECT now FROM t)") + ` AND ` + not("q.lease_until <= (SELECT now FROM t)"), ` AND ` + not("(q.fence - 1) >> {fence bits} >= (SELECT $3::bigint)")},
}

// orderedStatsText counts among the first 2 * $1 messages by seq.
var orderedStatsText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::bigint AS n
),
first AS MATERIALIZED (
  SELECT e.* FROM (SELECT q.due_at, q.lease_until FROM {live} AS q WHERE ` + behindNumber("0::bigint") + ` ORDER BY q.seq LIMIT 100000) AS e LIMIT (SELECT 2 * n FROM t)
)
SELECT
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE due_at <= (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS ready,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE due_at > (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS scheduled,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE lease_until > (SELECT now FROM t)) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(due_at) FROM first WHERE due_at <= (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS oldest,
  (SELECT paused::integer FROM {queues} WHERE name = {name}) AS paused`
