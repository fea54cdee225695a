package postgres

import (
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// durably is a list whose query waits for the synchronous standby, like a write. If the wait of a commit is cancelled,
// PostgreSQL shows its rows although no standby has them. What a query finds, or finds gone, is therefore only safe after
// a later commit that waits. A commit waits if its transaction has written to the log; a transaction ID alone is not
// enough. The message is an entry of about 60 bytes in the log, and the function may be called by every role.
func durably(list string) string {
	return `unnest((SELECT CASE WHEN pg_logical_emit_message(true, 'chanq', '') IS NOT NULL THEN ` + list + ` END))`
}

// findText probes the primary key for each id and the index of keys for each key, and reads only columns that a
// producer may read. It waits for no lock: the insert or settle whose outcome is unknown was repeated before, and the
// repetition waited for it.
var findText = `SELECT uuid_send(q.id), convert_to(q.dedup_key, {encoding}), q.fence
FROM ` + durably(`$1::uuid[]`) + ` AS a (id)
JOIN {live} AS q ON q.id = ANY (ARRAY[a.id])
UNION ALL
SELECT uuid_send(q.id), convert_to(q.dedup_key, {encoding}), 0
FROM unnest((SELECT $2::bytea[])) AS a (dedup_key)
JOIN {live} AS q ON q.dedup_key = ANY (ARRAY[convert_from(a.dedup_key, 'UTF8')]) AND q.dedup_key IS NOT NULL`

func (q *queue) Find(ids [][16]byte, keys []string) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.find, Args: []any{packIDs(ids), packKeys(keys)}}
}

// Statements for operators to inspect a queue. These are plain reads: PostgreSQL shows the last committed version of a
// row and never blocks. Texts are returned as bytes in UTF-8.

// statsText reads at most $1 index entries for scheduled messages. Of the due entries of each priority it reads ten
// times as many for ready ones and twice as many for leased ones, so that a backlog of millions costs no more. Leased
// messages are before ready ones, except those that were released or committed late.
const statsText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::bigint AS n
),
ready AS MATERIALIZED (
  SELECT f.due_at FROM ` + priorities + `
  CROSS JOIN LATERAL (
    SELECT e.due_at FROM (` + dueRows + ` LIMIT (SELECT 10 * n FROM t)) AS e
    WHERE e.lease_until <= (SELECT now FROM t) LIMIT (SELECT n FROM t)) AS f
)
SELECT
  (SELECT least(count(*), (SELECT n FROM t)) FROM ready) AS ready,
  (SELECT count(*) FROM (
    SELECT 1 FROM ` + priorities + `
    CROSS JOIN LATERAL (
      SELECT 1 FROM {live} AS q
      WHERE q.priority = p.priority AND q.due_at > (SELECT now FROM t)
      ORDER BY q.due_at LIMIT (SELECT n FROM t)) AS f
    LIMIT (SELECT n FROM t)) AS s) AS scheduled,
  (SELECT least(count(*), (SELECT n FROM t)) FROM ` + priorities + `
    CROSS JOIN LATERAL (` + dueRows + ` LIMIT (SELECT 2 * n FROM t)) AS e
    WHERE e.lease_until > (SELECT now FROM t)) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(due_at) FROM ready) AS oldest,
  (SELECT paused::integer FROM {queues} WHERE name = {name}) AS paused`

// dueRows are the rows of a priority that are due, in order.
const dueRows = `
      SELECT q.due_at, q.lease_until FROM {live} AS q
      WHERE q.priority = p.priority AND q.due_at <= (SELECT now FROM t)
      ORDER BY q.due_at`

func (q *queue) Stats(limit int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.stats, Args: []any{int64(limit)}}
}

// emptyText reads the last entry of the primary key. One statement has one snapshot, so the answer is exact, and a
// plain read takes no lock on rows. The newest messages are at the end, so nothing behind a live message is read. If
// none is live, it reads the entries of all messages that ended since the last vacuum, once, and marks them dead for
// the next reader, unless an open snapshot still sees them.
//
// EXISTS would make it a scan of the table, and the file of an empty table keeps its length: see liveTableText. Within
// EXISTS the planner also drops ORDER BY and LIMIT.
const emptyText = `SELECT (count(*) = 0)::integer AS empty
FROM (SELECT q.id FROM {live} AS q ORDER BY q.id DESC LIMIT 1) AS l`

func (q *queue) Empty() sqlbatch.Statement { return sqlbatch.Statement{Text: q.empty} }

// The columns of Peek and Get; t has now.
const (
	liveColumns = `CASE WHEN q.lease_until > (SELECT now FROM t) THEN 'leased' WHEN q.due_at <= (SELECT now FROM t) THEN 'ready' ELSE 'scheduled' END AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.due_at,
  CASE WHEN q.leased_by IS NOT NULL THEN q.lease_until END AS lease_until, NULL::bigint AS ended_at, q.expires_at, uuid_send(q.leased_by) AS leased_by,
  (SELECT convert_to(m.name, {encoding}) FROM {consumers} AS m WHERE m.id = q.leased_by) AS holder,
  ` + keyShown + noCause + contentsShown
	deadColumns = `'dead' AS state,
  ` + endedShown + `q.cause, q.fingerprint, ` + contentsShown
	doneColumns = `'done' AS state,
  ` + endedShown + noCause + contentsShown
	endedShown = `uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, NULL::bigint AS due_at,
  NULL::bigint AS lease_until, q.ended_at, NULL::bigint AS expires_at, NULL::bytea AS leased_by, NULL::bytea AS holder, ` + keyShown
	noCause       = `NULL::smallint AS cause, NULL::bigint AS fingerprint, `
	keyShown      = `convert_to(q.dedup_key, {encoding}) AS dedup_key, q.type, convert_to(left(q.last_error, 2000), {encoding}) AS last_error, convert_to(left(q.history, {most history}), {encoding}) AS history, `
	contentsShown = `q.headers, q.body{shown order}`
)

// Conditions that the rows of a lane are in a state.
var (
	ready     = `{lane} AND due_at <= (SELECT now FROM t) AND ` + not("lease_until > (SELECT now FROM t)")
	scheduled = `{lane} AND due_at > (SELECT now FROM t) AND ` + free
	free      = not("lease_until > (SELECT now FROM t)")
	leased    = `{lane} AND due_at <= (SELECT now FROM t) AND ` + not("lease_until <= (SELECT now FROM t)")
)

const (
	// $2, $3 and $4 are the lane, the time and the id of a Place: all rows of the lanes behind its own, and none of the
	// lanes before.
	behind = ` AND (due_at, uuid_send(id)) > (` + behindAt + `, uuid_send($4::uuid))`

	behindAt = `CASE WHEN {number} = $2::integer THEN $3::bigint WHEN {number} > $2::integer THEN -1 ELSE 9223372036854775807 END`
)

// behindNow is behind, and not due. It has one bound, since with two PostgreSQL might read the index from the lower
// one.
var behindNow = ` AND (due_at, uuid_send(id)) > (greatest((SELECT now FROM t), ` + behindAt + `), uuid_send($4::uuid)) AND ` + not("due_at <= (SELECT now FROM t)")

// browseLiveText chooses by the index and fetches the rows afterwards, so that no body is sorted. The rows are in the
// order of claims.
func browseLiveText(condition, behind string) string {
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
),
chosen AS MATERIALIZED (
  ` + chosen(`
      SELECT id FROM {live} WHERE `+condition+behind+`
      ORDER BY due_at, uuid_send(id) LIMIT {rows}`) + `
)
SELECT ` + liveColumns + `
FROM chosen AS c
JOIN {live} AS q ON q.id = ANY (ARRAY[c.id])
ORDER BY q.priority DESC, q.due_at, q.id`
}

func peekTexts() map[sqlbatch.State]string {
	return map[sqlbatch.State]string{
		sqlbatch.Dead: `SELECT ` + deadColumns + `
FROM {dead} AS q
WHERE (q.ended_at, q.id) < ($2::bigint, $3::uuid)
ORDER BY q.ended_at DESC, q.id DESC LIMIT $1::integer`,
		sqlbatch.Done: `SELECT ` + doneColumns + `
FROM {done} AS q
WHERE (q.ended_at, q.id) < ($2::bigint, $3::uuid)
ORDER BY q.ended_at DESC, q.id DESC LIMIT $1::integer`,
	}
}

func (q *queue) Peek(s sqlbatch.State, n int, after *sqlbatch.Place) sqlbatch.Statement {
	return q.page(q.peek[s], s, n, after)
}

// getText probes the primary key of each table.
const getText = `WITH t AS MATERIALIZED (SELECT {now} AS now)
SELECT ` + liveColumns + `
FROM {live} AS q WHERE q.id = $1::uuid
UNION ALL
SELECT ` + deadColumns + `
FROM {dead} AS q WHERE q.id = $1::uuid
UNION ALL
SELECT ` + doneColumns + `
FROM {done} AS q WHERE q.id = $1::uuid`

// partText reads no body for $3 = 0, and its length from the header of its value.
var partText = strings.ReplaceAll(getText, contentsShown,
	`q.headers, CASE WHEN $3::integer > 0 THEN substring(q.body FROM $2::integer + 1 FOR $3::integer) END AS body, octet_length(q.body)::bigint AS size{shown order}`)

// bodiesText probes the primary key of a table.
func bodiesText(table string) string {
	return `SELECT uuid_send(q.id), q.headers, q.body
FROM unnest((SELECT $1::uuid[])) AS a (id)
JOIN ` + table + ` AS q ON q.id = ANY (ARRAY[a.id])`
}

func (q *queue) Bodies(s sqlbatch.State, ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.bodies[s == sqlbatch.Dead], Args: []any{packIDs(ids)}}
}

func (q *queue) Get(id [16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.get, Args: []any{hexID(id)}}
}

func (q *queue) Part(id [16]byte, from, n int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.part, Args: []any{hexID(id), int64(from), int64(n)}}
}

// missingText reads only the catalog.
func missingText(ordered bool) string {
	own := "{'due'}"
	if ordered {
		own = "{'by seq'}, {'dead line'}, {'slots'}"
	}
	return `SELECT count(*) AS missing FROM unnest(ARRAY[` + own + `, {'key'}, {'dead ended'}, {'dead cause'}, {'dead key'}, {'dead new'}, {'done ended'}, {'consumers'}, {'samples'}, {'log'}]) AS i (name)
WHERE to_regclass(i.name) IS NULL`
}

func (q *queue) Missing() sqlbatch.Statement { return sqlbatch.Statement{Text: q.missing} }

// problemsText reads settings and the catalog. The encoding of the session is not a problem: see Dialect. $1 is the
// encoding that the database should have. It is a parameter so that a driver that cannot send parameters in this
// session fails now.
const problemsText = `SELECT '` + sqlbatch.ProblemForm + `' AS kind, 'the table ' || {'live'} || ' has no column ' || c.name AS found
FROM (VALUES ('lapses'), ('type')) AS c (name)
WHERE to_regclass({'live'}) IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = to_regclass({'live'}) AND a.attname = c.name)
UNION ALL
SELECT '` + sqlbatch.ProblemEncoding + `', 'the database''s encoding is ' || current_setting('server_encoding') || ', and chanq needs ' || $1::text
WHERE current_setting('server_encoding') NOT IN ($1::text, 'SQL_ASCII')
UNION ALL
SELECT '` + sqlbatch.ProblemDurability + `', 'synchronous_commit is off'
WHERE current_setting('synchronous_commit') = 'off'
UNION ALL
SELECT '` + sqlbatch.ProblemDurability + `', 'the table ' || t.name || ' is not logged'
FROM ` + ownTables + ` WHERE c.relpersistence <> 'p'
UNION ALL
SELECT '` + sqlbatch.ProblemHidden + `', 'row-level security hides rows of the table ' || t.name || ' from the role ' || current_user
FROM ` + ownTables + ` WHERE row_security_active(c.oid)
UNION ALL
SELECT '` + sqlbatch.ProblemTable + `', t.name || ' is not a table'
FROM ` + ownTables + ` WHERE c.relkind NOT IN ('r', 'p')
UNION ALL
SELECT '` + sqlbatch.ProblemNode + `', 'the queue is ordered, and this node of Citus draws other numbers than the coordinator'
FROM pg_catalog.pg_sequence AS s WHERE s.seqrelid = to_regclass({'numbers'}) AND s.seqmin > 1`

// ownTables are the tables that exist, of those whose rows are messages, and of the queues.
const ownTables = `(VALUES ({'live'}), ({'dead'}), ({'done'}), ({'queues'})) AS t (name) JOIN pg_catalog.pg_class AS c ON c.oid = to_regclass(t.name)`

func (q *queue) Problems() sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.problems, Args: []any{"UTF8"}}
}

const clockText = `SELECT {now} AS now`

func (q *queue) Clock() sqlbatch.Statement { return sqlbatch.Statement{Text: q.clock} }

// Statements of operators and of housekeeping on PostgreSQL.

const versionText = `SELECT version, min_version, features, paused::integer, kind, slots, {policy read}, shard, shards, shard_set, paused_at, paused_by, pause_reason, current_database() || '/' || created_at AS identity FROM {queues} WHERE name = {name}`

func (q *queue) Version() sqlbatch.Statement { return sqlbatch.Statement{Text: q.version} }

// lookText probes the primary key. It waits for no lock.
var lookText = `SELECT uuid_send(q.id), q.fence
FROM ` + durably(`$1::uuid[]`) + ` AS a (id)
JOIN {live} AS q ON q.id = ANY (ARRAY[a.id])`

func (q *queue) Look(ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.look, Args: []any{packIDs(ids)}}
}
