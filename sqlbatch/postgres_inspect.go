package sqlbatch

// What operators look at. These are plain reads: PostgreSQL shows the last
// committed version of a row and waits for nobody.

const postgresPriorities = `(VALUES (2), (1), (0), (-1)) AS p (priority)`

// postgresStats reads at most $1 index entries for each lane and state, so that
// a backlog of millions costs no more.
const postgresStats = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::bigint AS n
),
later AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE f.scheduled) AS scheduled, count(*) FILTER (WHERE NOT f.scheduled) AS leased
  FROM ` + postgresPriorities + `
  CROSS JOIN LATERAL (
    SELECT q.leased_by IS NULL AS scheduled FROM {live} AS q
    WHERE q.priority = p.priority AND q.visible_at > (SELECT now FROM t)
    ORDER BY q.visible_at LIMIT (SELECT n FROM t)
  ) AS f
)
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM ` + postgresPriorities + `
    CROSS JOIN LATERAL (
      SELECT 1 FROM {live} AS q
      WHERE q.priority = p.priority AND q.visible_at <= (SELECT now FROM t)
      ORDER BY q.visible_at LIMIT (SELECT n FROM t)
    ) AS f
    LIMIT (SELECT n FROM t)) AS r) AS ready,
  (SELECT least(later.scheduled, t.n) FROM later, t) AS scheduled,
  (SELECT least(later.leased, t.n) FROM later, t) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(f.visible_at)
   FROM ` + postgresPriorities + `
   CROSS JOIN LATERAL (
     SELECT q.visible_at FROM {live} AS q
     WHERE q.priority = p.priority AND q.visible_at <= (SELECT now FROM t)
     ORDER BY q.visible_at LIMIT 1
   ) AS f) AS oldest,
  (SELECT paused::integer FROM {queues} WHERE name = {name}) AS paused`

func (q *postgresQueue) Stats(limit int) Statement {
	return Statement{Text: q.stats, Args: []any{int64(limit)}}
}

// The columns of Peek and Get; t has now.
const (
	postgresLiveColumns = `CASE WHEN q.visible_at <= (SELECT now FROM t) THEN 'ready' WHEN q.leased_by IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.visible_at AS due_at, q.leased_by, q.dedup_key, q.last_error, q.headers, q.body`
	postgresDeadColumns = `'dead' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.ended_at AS due_at, NULL::text AS leased_by, q.dedup_key, q.last_error, q.headers, q.body`
	postgresDoneColumns = `'done' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.ended_at AS due_at, NULL::text AS leased_by, q.dedup_key, q.last_error, q.headers, q.body`
)

// Peeks of live messages choose by the index and fetch the rows afterwards, so
// that no body is sorted.
func postgresPeeks() map[State]string {
	live := func(condition string) string {
		return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
)` + postgresChosen(`
    SELECT id FROM {live}
    WHERE priority = {priority} AND `+condition+`
    ORDER BY visible_at, uuid_send(id) LIMIT {rows}`) + `
SELECT ` + postgresLiveColumns + `
FROM ` + postgresAllChosen + ` AS c
JOIN {live} AS q ON q.id = ANY (ARRAY[c.id])
ORDER BY q.priority DESC, q.visible_at, q.id`
	}
	return map[State]string{
		Ready:     live(`visible_at <= (SELECT now FROM t)`),
		Scheduled: live(`visible_at > (SELECT now FROM t) AND leased_by IS NULL`),
		Leased:    live(`visible_at > (SELECT now FROM t) AND leased_by IS NOT NULL`),
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
