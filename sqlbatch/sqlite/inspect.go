package sqlite

import (
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// Statements that only read.

const versionText = `SELECT version, min_version, features, paused, kind, slots, {policy read}, shard, shards, shard_set, paused_at, paused_by, pause_reason,
  (SELECT file FROM pragma_database_list WHERE name = {schema_text} COLLATE NOCASE) || '/' || created_at AS identity FROM {queues} WHERE name = {name}`

const clockText = `SELECT {now}`

// Problems. A packed list is digits in a blob, which SQLite reads as a number in the database's encoding: in UTF-16
// each would be 0. (All databases of a connection have the encoding of main.) A file keeps its commits if each is
// synced, and if its rollback journal is also in a file. An in-memory database keeps none, as expected. Unless it is shared,
// it belongs to one connection, whose locking mode is then exclusive: that of the VFS memdb is not.
const problemsText = `SELECT 'form' AS kind, 'table ' || {live_text} || ' has no column ' || c.name AS found
FROM (SELECT 'lapses' AS name UNION ALL SELECT 'type') AS c
WHERE EXISTS (SELECT 1 FROM pragma_table_info({live_text}, {schema_text}))
  AND NOT EXISTS (SELECT 1 FROM pragma_table_info({live_text}, {schema_text}) AS i WHERE i.name = c.name)
UNION ALL
SELECT 'encoding', 'PRAGMA encoding is ' || encoding || ', not UTF-8' FROM pragma_encoding WHERE encoding <> 'UTF-8'
UNION ALL
SELECT 'durability', 'PRAGMA synchronous is ' || synchronous || ', below FULL (2)' FROM pragma_synchronous({schema_text})
WHERE synchronous < 2 AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = {schema_text} COLLATE NOCASE AND file <> '')
UNION ALL
SELECT 'durability', 'PRAGMA journal_mode is ' || journal_mode FROM pragma_journal_mode({schema_text})
WHERE journal_mode IN ('memory', 'off') AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = {schema_text} COLLATE NOCASE AND file <> '')
UNION ALL
SELECT 'table', m.name || ' is a ' || m.type || ', not a table' FROM {database}.sqlite_master AS m
WHERE m.type <> 'table' AND m.name IN ({live_text}, {live_text} || '__dead', {live_text} || '__done', 'chanq__queues')
UNION ALL
SELECT 'memory', 'the database is in memory, and each connection of the *sql.DB has another one'
WHERE EXISTS (SELECT 1 FROM pragma_database_list AS d CROSS JOIN pragma_locking_mode(d.name) AS l WHERE d.seq = 0 AND d.file = '' AND l.locking_mode = 'exclusive')
  AND EXISTS (SELECT 1 FROM main.sqlite_master WHERE name = 'chanq__queues')`

const missingText = `SELECT count(*) AS missing FROM (VALUES {index names}, ('chanq__consumers'), ('chanq__samples'), ('chanq__log')) AS i
WHERE NOT EXISTS (SELECT 1 FROM {database}.sqlite_master AS m WHERE m.type IN ('index', 'table') AND m.name = i.column1)`

// Stats: each count stops at ?1 messages of its state. Of the due entries of each priority it reads ten times as many
// for ready ones, and twice as many for leased ones. Leased messages are before ready ones, except those that were
// released or committed late.
var statsText = `WITH ready AS MATERIALIZED (
` + lanes("{lanes}", `    SELECT * FROM (SELECT due_at FROM (SELECT due_at, lease_until FROM {range} ORDER BY due_at, id LIMIT ?1 * 10) WHERE lease_until <= {now} LIMIT ?1 + 0)`, due) + `
)
SELECT
  (SELECT min(count(*), ?1) FROM ready),
  ` + lanes("(SELECT count(*) FROM (\n{lanes}\n    LIMIT ?1 + 0))", "    SELECT 1 FROM {range}", later) + `,
  ` + lanes("(SELECT min(count(*), ?1) FROM (\n{lanes}\n    ) WHERE lease_until > {now})", "    SELECT * FROM (SELECT lease_until FROM {range} ORDER BY due_at, id LIMIT ?1 * 2)", due) + `,
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT ?1)),
  (SELECT {now} - min(due_at) FROM ready),
  (SELECT paused FROM {queues} WHERE name = {name})`

// Empty reads the first entry of the table or of one of its indexes, none of which keeps entries of deleted rows. A
// statement reads what was committed when it began.
const emptyText = `SELECT NOT EXISTS (SELECT 1 FROM {live}) AS empty`

const (
	liveColumns = `CASE WHEN lease_until > {now} THEN 'leased' WHEN due_at <= {now} THEN 'ready' ELSE 'scheduled' END AS state,
  id, priority, fence, attempts, enqueued_at, due_at, iif(leased_by IS NULL, NULL, lease_until) AS lease_until, NULL AS ended_at, expires_at, leased_by,
  (SELECT m.name FROM {consumers} AS m WHERE m.id = leased_by) AS holder, dedup_key, type, substr(last_error, 1, 2000) AS last_error, substr(history, 1, {most history}) AS history, NULL AS cause, NULL AS fingerprint, headers, body{order} FROM {live}`
	deadColumns = `'dead' AS state,
  id, priority, fence, attempts, enqueued_at, NULL AS due_at, NULL AS lease_until, ended_at, NULL AS expires_at, NULL AS leased_by, NULL AS holder,
  dedup_key, type, substr(last_error, 1, 2000) AS last_error, substr(history, 1, {most history}) AS history, cause, fingerprint, headers, body{order} FROM {dead}`
	doneColumns = `'done' AS state,
  id, priority, fence, attempts, enqueued_at, NULL AS due_at, NULL AS lease_until, ended_at, NULL AS expires_at, NULL AS leased_by, NULL AS holder,
  dedup_key, type, substr(last_error, 1, 2000) AS last_error, substr(history, 1, {most history}) AS history, NULL AS cause, NULL AS fingerprint, headers, body{order} FROM {done}`
)

// Browse reads at most ?1 live entries of each priority, and the rows of the first ?1 of all: see browseText.
const (
	// ?2, ?3 and ?4 are the lane, the time and the id of a Place: all rows of the lanes behind its own, and none of the
	// lanes before.
	from   = `CASE WHEN {number} = ?2 THEN ?3 WHEN {number} > ?2 THEN -1 ELSE 9223372036854775807 END`
	behind = ` AND (due_at, id) > (` + from + `, ?4)`

	peekLane = `    SELECT * FROM (SELECT rowid, priority, due_at, id FROM {range} ORDER BY due_at, id LIMIT ?1 + 0)`
	peekDead = `SELECT ` + deadColumns + ` WHERE (ended_at, id) < (?2, ?3) ORDER BY ended_at DESC, id DESC LIMIT ?1`
	peekDone = `SELECT ` + doneColumns + ` WHERE (ended_at, id) < (?2, ?3) ORDER BY ended_at DESC, id DESC LIMIT ?1`
)

const getText = `SELECT ` + liveColumns + ` WHERE id = ?1
UNION ALL SELECT ` + deadColumns + ` WHERE id = ?1
UNION ALL SELECT ` + doneColumns + ` WHERE id = ?1`

// partText reads no body for ?3 = 0. SQLite loads a body to return a part of it.
var partText = strings.ReplaceAll(getText, ` headers, body{order}`,
	` headers, CASE WHEN ?3 > 0 THEN substr(CAST(body AS BLOB), ?2 + 1, ?3) END AS body, `+viewBytes+` AS size{order}`)

func (q *queue) Version() sqlbatch.Statement  { return sqlbatch.Statement{Text: q.version} }
func (q *queue) Problems() sqlbatch.Statement { return sqlbatch.Statement{Text: q.problems} }
func (q *queue) Missing() sqlbatch.Statement  { return sqlbatch.Statement{Text: q.missing} }
func (q *queue) Clock() sqlbatch.Statement    { return sqlbatch.Statement{Text: q.clock} }

func (q *queue) Stats(limit int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.stats, Args: []any{int64(limit)}}
}

func (q *queue) Empty() sqlbatch.Statement { return sqlbatch.Statement{Text: q.empty} }

func (q *queue) Peek(s sqlbatch.State, n int, after *sqlbatch.Place) sqlbatch.Statement {
	return q.page(q.peek[s], s, n, after)
}

const (
	bodiesText = `SELECT id, headers, body FROM `
	ofIDs      = ` WHERE id IN ` + listed
)

func (q *queue) Bodies(s sqlbatch.State, ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.bodies[s == sqlbatch.Dead], Args: []any{packIDs(ids)}}
}

func (q *queue) Get(id [16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.get, Args: []any{id[:]}}
}

func (q *queue) Part(id [16]byte, from, n int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.part, Args: []any{id[:], int64(from), int64(n)}}
}

const findText = `SELECT id, dedup_key, fence FROM {live} WHERE id IN ` + listed + `
UNION ALL
SELECT id, dedup_key, 0 FROM {live} WHERE dedup_key IN (SELECT value FROM json_each(?2))`

const lookText = `SELECT id, fence FROM {live} WHERE id IN ` + listed

func (q *queue) Find(ids [][16]byte, keys []string) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.find, Args: []any{packIDs(ids), jsonStrings(keys)}}
}

func (q *queue) Look(ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.look, Args: []any{packIDs(ids)}}
}
