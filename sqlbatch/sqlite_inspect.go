package sqlbatch

// The statements that look, and change nothing.

const sqliteVersion = `SELECT version, paused FROM {queues} WHERE name = {name}`

const sqliteClock = `SELECT {now}`

// Problems. A packed list is digits in a blob, which SQLite reads as a number in
// the database's encoding: in UTF-16 each would be 0. (All databases of a
// connection have the encoding of main.) A file keeps its commits if each is
// synced, and if the journal of what it undoes is in a file, too; a database in
// memory keeps none, and nobody expects it to.
const sqliteProblems = `SELECT 'form' AS kind, 'table ' || {live_text} || ' has no column expires_at or lapses' AS found
WHERE EXISTS (SELECT 1 FROM pragma_table_info({live_text}, {schema_text}))
  AND (SELECT count(*) FROM pragma_table_info({live_text}, {schema_text}) WHERE name IN ('expires_at', 'lapses')) < 2
UNION ALL
SELECT 'encoding', 'PRAGMA encoding is ' || encoding || ', not UTF-8' FROM pragma_encoding WHERE encoding <> 'UTF-8'
UNION ALL
SELECT 'durability', 'PRAGMA synchronous is ' || synchronous || ', below FULL (2)' FROM pragma_synchronous({schema_text})
WHERE synchronous < 2 AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = {schema_text} COLLATE NOCASE AND file <> '')
UNION ALL
SELECT 'durability', 'PRAGMA journal_mode is ' || journal_mode FROM pragma_journal_mode({schema_text})
WHERE journal_mode IN ('memory', 'off') AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = {schema_text} COLLATE NOCASE AND file <> '')`

// Stats: each count ends at ?1 entries of its own state.
var sqliteStats = `SELECT
  ` + sqliteCount(sqliteRanOut, sqliteDue) + `,
  ` + sqliteCount(sqliteScheduled) + `,
  ` + sqliteCount(sqliteLeased) + `,
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT ?1)),
  ` + sqliteLanes("(SELECT -min(due) FROM (\n{lanes}))", sqliteNextDueLane, sqliteRanOut, sqliteDue) + `,
  (SELECT paused FROM {queues} WHERE name = {name})`

func sqliteCount(ranges ...string) string {
	return sqliteLanes("(SELECT count(*) FROM (\n{lanes}\n    LIMIT ?1 + 0))", "    SELECT 1 FROM {range}", ranges...)
}

const (
	sqliteLiveColumns = `CASE WHEN visible_at <= {now} THEN 'ready' WHEN leased_by IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
  id, priority, fence, attempts, enqueued_at, visible_at AS due_at, expires_at, leased_by, (SELECT m.name FROM {members} AS m WHERE m.id = leased_by) AS holder,
  dedup_key, last_error, headers, body FROM {live}`
	sqliteDeadColumns = `'dead' AS state,
  id, priority, fence, attempts, enqueued_at, ended_at AS due_at, NULL AS expires_at, NULL AS leased_by, NULL AS holder,
  dedup_key, last_error, headers, body FROM {dead}`
	sqliteDoneColumns = `'done' AS state,
  id, priority, fence, attempts, enqueued_at, ended_at AS due_at, NULL AS expires_at, NULL AS leased_by, NULL AS holder,
  dedup_key, last_error, headers, body FROM {done}`
)

// Peek reads at most ?1 entries of each range, and the rows of the first ?1 of all.
const (
	sqlitePeekLive = `SELECT ` + sqliteLiveColumns + ` WHERE rowid IN (SELECT rowid FROM (
{lanes}
  ) ORDER BY priority DESC, unleased, visible_at, id LIMIT ?1 + 0)
ORDER BY priority DESC, leased_by IS NULL, visible_at, id`
	sqlitePeekLane = `    SELECT * FROM (SELECT rowid, priority, leased_by IS NULL AS unleased, visible_at, id FROM {range} ORDER BY visible_at, id LIMIT ?1 + 0)`
	sqlitePeekDead = `SELECT ` + sqliteDeadColumns + ` ORDER BY ended_at DESC, id DESC LIMIT ?1`
	sqlitePeekDone = `SELECT ` + sqliteDoneColumns + ` ORDER BY ended_at DESC, id DESC LIMIT ?1`
)

const sqliteGet = `SELECT ` + sqliteLiveColumns + ` WHERE id = ?1
UNION ALL SELECT ` + sqliteDeadColumns + ` WHERE id = ?1
UNION ALL SELECT ` + sqliteDoneColumns + ` WHERE id = ?1`

func (q *sqliteQueue) Version() Statement  { return Statement{Text: q.version} }
func (q *sqliteQueue) Problems() Statement { return Statement{Text: q.problems} }
func (q *sqliteQueue) Clock() Statement    { return Statement{Text: q.clock} }

func (q *sqliteQueue) Stats(limit int) Statement {
	return Statement{Text: q.stats, Args: []any{int64(limit)}}
}

func (q *sqliteQueue) Peek(s State, n int) Statement {
	return Statement{Text: q.peek[s], Args: []any{int64(n)}}
}

func (q *sqliteQueue) Get(id [16]byte) Statement {
	return Statement{Text: q.get, Args: []any{id[:]}}
}
