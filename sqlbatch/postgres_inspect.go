package sqlbatch

// What operators look at. These are plain reads: PostgreSQL shows the last
// committed version of a row and waits for nobody. Texts are returned as bytes in
// UTF-8.

// postgresCount counts up to t.n rows of the live table: those of four lanes, and
// it reads no entry of another state.
func postgresCount(condition string) string {
	return `(SELECT count(*) FROM (
    SELECT 1 FROM ` + postgresPriorities + `
    CROSS JOIN LATERAL (
      SELECT 1 FROM {live} AS q
      WHERE q.priority = p.priority AND ` + condition + `
      ORDER BY q.visible_at LIMIT (SELECT n FROM t)
    ) AS f
    LIMIT (SELECT n FROM t)) AS r)`
}

// postgresStats reads at most $1 index entries for each count, two counts for ready
// ones, so that a backlog of millions costs no more.
func postgresStats() string {
	const leased, unleased = `q.leased_by IS NOT NULL`, `q.leased_by IS NULL`
	const due, later = ` AND q.visible_at <= (SELECT now FROM t)`, ` AND q.visible_at > (SELECT now FROM t)`
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::bigint AS n
)
SELECT
  least(` + postgresCount(leased+due) + ` + ` + postgresCount(unleased+due) + `, (SELECT n FROM t)) AS ready,
  ` + postgresCount(unleased+later) + ` AS scheduled,
  ` + postgresCount(leased+later) + ` AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(f.visible_at)
  ` + postgresFirst(due) + `) AS oldest,
  (SELECT paused::integer FROM {queues} WHERE name = {name}) AS paused`
}

func (q *postgresQueue) Stats(limit int) Statement {
	return Statement{Text: q.stats, Args: []any{int64(limit)}}
}

// The columns of Peek and Get; t has now.
const (
	postgresLiveColumns = `CASE WHEN q.visible_at <= (SELECT now FROM t) THEN 'ready' WHEN q.leased_by IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.visible_at AS due_at, q.expires_at, uuid_send(q.leased_by) AS leased_by,
  (SELECT convert_to(m.name, {encoding}) FROM {members} AS m WHERE m.id = q.leased_by) AS holder,
  ` + postgresTextColumns
	postgresDeadColumns = `'dead' AS state,
  ` + postgresEndedShown
	postgresDoneColumns = `'done' AS state,
  ` + postgresEndedShown
	postgresEndedShown = `uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.ended_at AS due_at, NULL::bigint AS expires_at,
  NULL::bytea AS leased_by, NULL::bytea AS holder, ` + postgresTextColumns
	postgresTextColumns = `convert_to(q.dedup_key, {encoding}) AS dedup_key, convert_to(q.last_error, {encoding}) AS last_error, q.headers, q.body`
)

// Conditions on the rows of the lanes that hold a state.
const (
	postgresDue   = `{lane} AND visible_at <= (SELECT now FROM t)`
	postgresLater = `{lane} AND visible_at > (SELECT now FROM t)`
)

// Peeks of live messages choose by the index and fetch the rows afterwards, so
// that no body is sorted. Ready ones come in the order of claims.
func postgresPeeks() map[State]string {
	live := func(condition string, lanes []postgresLane) string {
		return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
),
chosen AS MATERIALIZED (
  ` + postgresChosen(`
      SELECT id FROM {live} WHERE `+condition+`
      ORDER BY visible_at, uuid_send(id) LIMIT {rows}`, lanes) + `
)
SELECT ` + postgresLiveColumns + `
FROM chosen AS c
JOIN {live} AS q ON q.id = ANY (ARRAY[c.id])
ORDER BY q.priority DESC, q.leased_by IS NULL, q.visible_at, q.id`
	}
	return map[State]string{
		Ready:     live(postgresDue, postgresReadyLanes),
		Scheduled: live(postgresLater, postgresLanes(false)),
		Leased:    live(postgresLater, postgresLanes(true)),
		Dead: `SELECT ` + postgresDeadColumns + `
FROM {dead} AS q
ORDER BY q.ended_at DESC, q.id DESC LIMIT $1::integer`,
		Done: `SELECT ` + postgresDoneColumns + `
FROM {done} AS q
ORDER BY q.ended_at DESC, q.id DESC LIMIT $1::integer`,
	}
}

func (q *postgresQueue) Peek(s State, n int) Statement {
	return Statement{Text: q.peek[s], Args: []any{int64(min(n, postgresRows))}}
}

// postgresGet probes the primary key of each table.
const postgresGet = `WITH t AS MATERIALIZED (SELECT {now} AS now)
SELECT ` + postgresLiveColumns + `
FROM {live} AS q WHERE q.id = $1::uuid
UNION ALL
SELECT ` + postgresDeadColumns + `
FROM {dead} AS q WHERE q.id = $1::uuid
UNION ALL
SELECT ` + postgresDoneColumns + `
FROM {done} AS q WHERE q.id = $1::uuid`

func (q *postgresQueue) Get(id [16]byte) Statement {
	return Statement{Text: q.get, Args: []any{postgresID(id)}}
}

// postgresProblems reads settings and the catalog. The encoding of the session is
// none: see Postgres. $1 is the one that the database should have, and is there
// because a driver that cannot send a parameter in this session shall say so now.
const postgresProblems = `SELECT '` + ProblemForm + `' AS kind, 'the table ' || {'live'} || ' has no column ' || c.name AS found
FROM (VALUES ('expires_at'), ('lapses')) AS c (name)
WHERE to_regclass({'live'}) IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = to_regclass({'live'}) AND a.attname = c.name)
UNION ALL
SELECT '` + ProblemEncoding + `', 'the database''s encoding is ' || current_setting('server_encoding') || ', and chanq needs ' || $1::text
WHERE current_setting('server_encoding') NOT IN ($1::text, 'SQL_ASCII')
UNION ALL
SELECT '` + ProblemDurability + `', 'synchronous_commit is off'
WHERE current_setting('synchronous_commit') = 'off'
UNION ALL
SELECT '` + ProblemDurability + `', 'the table ' || {'live'} || ' is not logged'
FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass({'live'}) AND c.relpersistence <> 'p'`

func (q *postgresQueue) Problems() Statement {
	return Statement{Text: q.problems, Args: []any{"UTF8"}}
}

const postgresClock = `SELECT {now} AS now`

func (q *postgresQueue) Clock() Statement { return Statement{Text: q.clock} }
