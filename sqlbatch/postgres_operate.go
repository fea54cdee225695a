package sqlbatch

import "time"

// The statements of operators and of housekeeping on PostgreSQL.

const postgresVersion = `SELECT version, paused::integer FROM {queues} WHERE name = {name}`

const postgresRecord = `INSERT INTO {queues} (name, version, created_at) VALUES ({name}, $1::integer, {now})
ON CONFLICT (name) DO UPDATE SET version = excluded.version`

const postgresSetPaused = `UPDATE {queues} SET paused = $1::integer = 1 WHERE name = {name}`

// postgresCancel deletes by the primary key, whatever the fence; path and locks
// are those of postgresAck.
const postgresCancel = `DELETE FROM {live} AS q
USING unnest((SELECT $1::uuid[])) AS a (id)
WHERE q.id = ANY (ARRAY[a.id])
RETURNING uuid_send(q.id)`

// Purges and trims skip what is locked: maintenance waits for nobody. The ids go
// through an array, whose length the planner does not know and takes for ten, so
// it probes the primary key.
//
// Scheduled and leased messages lie mixed in the index; telling them apart
// visits each row.
func postgresPurges() map[State]string {
	live := func(condition string) string {
		return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
)` + postgresChosen(`
    SELECT id FROM {live}
    WHERE priority = {priority} AND `+condition+`
    ORDER BY visible_at, uuid_send(id) LIMIT {rows} FOR UPDATE SKIP LOCKED`) + `
DELETE FROM {live}
WHERE id = ANY (ARRAY(SELECT c.id FROM ` + postgresAllChosen + ` AS c))
RETURNING uuid_send(id)`
	}
	ended := func(table string) string {
		return `DELETE FROM ` + table + `
WHERE id = ANY (ARRAY(SELECT id FROM ` + table + ` ORDER BY ended_at, id LIMIT $1::integer FOR UPDATE SKIP LOCKED))
RETURNING uuid_send(id)`
	}
	return map[State]string{
		Ready:     live(`visible_at <= (SELECT now FROM t)`),
		Scheduled: live(`visible_at > (SELECT now FROM t) AND leased_by IS NULL`),
		Leased:    live(`visible_at > (SELECT now FROM t) AND leased_by IS NOT NULL`),
		Dead:      ended(`{dead}`),
		Done:      ended(`{done}`),
	}
}

func (q *postgresQueue) Purge(s State, n int, w Window) Statement {
	return Statement{Text: q.purge[s], Args: []any{int64(min(n, postgresRows))}}
}

// postgresTrim deletes the old end of the done table.
const postgresTrim = `DELETE FROM {done}
WHERE id = ANY (ARRAY(
  SELECT id FROM {done} WHERE ended_at < {now} - $1::bigint
  ORDER BY ended_at, id LIMIT $2::integer FOR UPDATE SKIP LOCKED))
RETURNING uuid_send(id)`

func (q *postgresQueue) Trim(age time.Duration, n int, after int64) Statement {
	return Statement{Text: q.trim, Args: []any{milliseconds(age), int64(n)}}
}

// A redrive moves rows in one statement. A message stays dead while it cannot
// live again: a live one has its id (an INSERT repeated after an unknown
// outcome) or its key, or a dead one with the same key and a smaller id goes
// first. ON CONFLICT decides where another session was quicker. A moved row is
// due now, with no attempts and a higher fence than any lease of its former life.
const (
	postgresRedriveRoom = `NOT EXISTS (SELECT 1 FROM {live} AS q WHERE q.id = d.id)
    AND (d.dedup_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM {live} AS q WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL))`

	postgresRedriveMove = `moved AS (
  INSERT INTO {live} (id, priority, visible_at, enqueued_at, fence, attempts, dedup_key, last_error, headers, body)
  SELECT id, priority, {now}, enqueued_at, fence + 1, 0, dedup_key, last_error, headers, body
  FROM chosen
  ON CONFLICT DO NOTHING
  RETURNING id
)
DELETE FROM {dead}
WHERE id = ANY (ARRAY(SELECT id FROM moved))
RETURNING uuid_send(id)`

	// By the time of death, skipping what is locked.
	postgresRedrive = `WITH chosen AS MATERIALIZED (
  SELECT d.* FROM {dead} AS d
  WHERE ` + postgresRedriveRoom + `
    AND (d.dedup_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM {dead} AS e WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id))
  ORDER BY d.ended_at, d.id LIMIT $1::integer FOR UPDATE OF d SKIP LOCKED
),
` + postgresRedriveMove

	// By the primary key, waiting for what is locked. The smallest id of the list
	// has a key first: the list is in order, and so is the insert.
	postgresRedriveIDs = `WITH chosen AS MATERIALIZED (
  SELECT d.* FROM unnest($1::uuid[]) AS a (id)
  JOIN {dead} AS d ON d.id = ANY (ARRAY[a.id])
  WHERE ` + postgresRedriveRoom + `
  FOR UPDATE OF d
),
` + postgresRedriveMove
)

func (q *postgresQueue) Redrive(n int, ids [][16]byte, w Window) Statement {
	if len(ids) > 0 {
		return Statement{Text: q.redriveIDs, Args: []any{postgresIDs(ids)}}
	}
	return Statement{Text: q.redrive, Args: []any{int64(n)}}
}

func (q *postgresQueue) Version() Statement { return Statement{Text: q.version} }

func (q *postgresQueue) Record(version int) Statement {
	return Statement{Text: q.record, Args: []any{int64(version)}}
}

func (q *postgresQueue) Pause() Statement {
	return Statement{Text: q.setPaused, Args: []any{int64(1)}}
}

func (q *postgresQueue) Resume() Statement {
	return Statement{Text: q.setPaused, Args: []any{int64(0)}}
}

func (q *postgresQueue) Cancel(ids [][16]byte) Statement {
	return Statement{Text: q.cancel, Args: []any{postgresIDs(ids)}}
}
