package sqlbatch

import (
	"encoding/json"
	"time"
)

// The statements of operators and of housekeeping on SQLite.

const sqliteVersion = `SELECT version, paused FROM {queues} WHERE name = {name}`

const sqliteRecord = `INSERT INTO {queues} (name, version, created_at) VALUES ({name}, ?1, {now})
ON CONFLICT (name) DO UPDATE SET version = excluded.version`

// Stats counts at most ?1 index entries a lane and state.
const sqliteStats = `SELECT
  min(?1, (SELECT sum(c) FROM (
    SELECT count(*) AS c FROM (SELECT 1 FROM {live} WHERE priority = 2 AND visible_at <= {now} LIMIT ?1)
    UNION ALL SELECT count(*) FROM (SELECT 1 FROM {live} WHERE priority = 1 AND visible_at <= {now} LIMIT ?1)
    UNION ALL SELECT count(*) FROM (SELECT 1 FROM {live} WHERE priority = 0 AND visible_at <= {now} LIMIT ?1)
    UNION ALL SELECT count(*) FROM (SELECT 1 FROM {live} WHERE priority = -1 AND visible_at <= {now} LIMIT ?1)))),
  min(?1, coalesce(sum(leased = 0), 0)),
  min(?1, coalesce(sum(leased), 0)),
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT ?1)),
  (SELECT {now} - min(due) FROM (
    SELECT * FROM (SELECT visible_at AS due FROM {live} WHERE priority = 2 ORDER BY visible_at, id LIMIT 1)
    UNION ALL SELECT * FROM (SELECT visible_at FROM {live} WHERE priority = 1 ORDER BY visible_at, id LIMIT 1)
    UNION ALL SELECT * FROM (SELECT visible_at FROM {live} WHERE priority = 0 ORDER BY visible_at, id LIMIT 1)
    UNION ALL SELECT * FROM (SELECT visible_at FROM {live} WHERE priority = -1 ORDER BY visible_at, id LIMIT 1))
   WHERE due <= {now}),
  (SELECT paused FROM {queues} WHERE name = {name})
FROM (
  SELECT * FROM (SELECT leased_by IS NOT NULL AS leased FROM {live} WHERE priority = 2 AND visible_at > {now} ORDER BY visible_at, id LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT leased_by IS NOT NULL FROM {live} WHERE priority = 1 AND visible_at > {now} ORDER BY visible_at, id LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT leased_by IS NOT NULL FROM {live} WHERE priority = 0 AND visible_at > {now} ORDER BY visible_at, id LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT leased_by IS NOT NULL FROM {live} WHERE priority = -1 AND visible_at > {now} ORDER BY visible_at, id LIMIT ?1))`

const sqliteLiveState = `CASE WHEN visible_at <= {now} THEN 'ready' WHEN leased_by IS NULL THEN 'scheduled' ELSE 'leased' END`

const sqliteLiveColumns = sqliteLiveState + ` AS state, id, priority, fence, attempts, enqueued_at, visible_at AS due_at, leased_by, dedup_key, last_error, headers, body FROM {live}`

const (
	sqliteDeadColumns = `'dead' AS state, id, priority, fence, attempts, enqueued_at, ended_at AS due_at, NULL AS leased_by, dedup_key, last_error, headers, body FROM {dead}`
	sqliteDoneColumns = `'done' AS state, id, priority, fence, attempts, enqueued_at, ended_at AS due_at, NULL AS leased_by, dedup_key, last_error, headers, body FROM {done}`
)

// Scheduled and leased rows lie mixed in the same range of the index and are
// told apart by leased_by, so the walk ends after 10,000 entries of a lane.
const (
	sqliteScheduledLane = `    SELECT * FROM (SELECT rowid FROM (SELECT rowid, leased_by FROM {live} WHERE priority = %d AND visible_at > {now} ORDER BY visible_at, id LIMIT 10000) WHERE leased_by IS NULL LIMIT ?1)`
	sqliteLeasedLane    = `    SELECT * FROM (SELECT rowid FROM (SELECT rowid, leased_by FROM {live} WHERE priority = %d AND visible_at > {now} ORDER BY visible_at, id LIMIT 10000) WHERE leased_by IS NOT NULL LIMIT ?1)`
)

// A purge walks on: it is to find every message of its state.
const (
	sqliteScheduledPurgeLane = `    SELECT * FROM (SELECT rowid FROM {live} WHERE priority = %d AND visible_at > {now} AND leased_by IS NULL ORDER BY visible_at, id LIMIT ?1)`
	sqliteLeasedPurgeLane    = `    SELECT * FROM (SELECT rowid FROM {live} WHERE priority = %d AND visible_at > {now} AND leased_by IS NOT NULL ORDER BY visible_at, id LIMIT ?1)`
)

const sqlitePeekLive = `SELECT ` + sqliteLiveColumns + ` WHERE rowid IN (SELECT rowid FROM (
{lanes}
) LIMIT ?1) ORDER BY priority DESC, visible_at, id`

const (
	sqlitePeekDead = `SELECT ` + sqliteDeadColumns + ` ORDER BY ended_at DESC, id DESC LIMIT ?1`
	sqlitePeekDone = `SELECT ` + sqliteDoneColumns + ` ORDER BY ended_at DESC, id DESC LIMIT ?1`
)

const sqliteGet = `SELECT ` + sqliteLiveColumns + ` WHERE id = ?1
UNION ALL SELECT ` + sqliteDeadColumns + ` WHERE id = ?1
UNION ALL SELECT ` + sqliteDoneColumns + ` WHERE id = ?1`

const sqliteListed = `(WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?1)) SELECT substr(?1, o, 16) FROM n)`

const sqliteCancel = `DELETE FROM {live} WHERE id IN ` + sqliteListed + ` RETURNING id`

const (
	sqlitePurgeLive = `DELETE FROM {live} WHERE rowid IN (SELECT rowid FROM (
{lanes}
) LIMIT ?1) RETURNING id`
	sqlitePurgeDead = `DELETE FROM {dead} WHERE rowid IN (SELECT rowid FROM {dead} ORDER BY ended_at LIMIT ?1) RETURNING id`
	sqlitePurgeDone = `DELETE FROM {done} WHERE rowid IN (SELECT rowid FROM {done} ORDER BY ended_at LIMIT ?1) RETURNING id`
)

// Redrive marks the messages that it moves by ended_at = -1, inserts them, and
// deletes them: the choice could not be made again once they are live.
//
// A message stays dead while it cannot live again: a live one has its id (an
// INSERT repeated after an unknown outcome) or its key, or a dead one with the
// same key and a smaller id goes first.
const (
	sqliteRedriveMark   = `UPDATE {dead} SET ended_at = -1 WHERE rowid IN (SELECT rowid FROM {dead} AS d WHERE `
	sqliteRedriveInsert = `INSERT INTO {live} (id, priority, visible_at, enqueued_at, due_at, fence, attempts, dedup_key, last_error, headers, body)
SELECT id, priority, {now}, enqueued_at, {now}, fence + 1, 0, dedup_key, last_error, headers, body FROM {dead} WHERE ended_at = -1`
	sqliteRedriveDelete = `DELETE FROM {dead} WHERE ended_at = -1 RETURNING id`

	sqliteRedriveRoom = `NOT EXISTS (SELECT 1 FROM {live} AS q WHERE q.id = d.id)
  AND NOT EXISTS (SELECT 1 FROM {live} AS q WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM {dead} AS e WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id`

	sqliteOldestDead = sqliteRedriveRoom + `)
ORDER BY ended_at, id LIMIT ?1)`
	// Among the ids of the list only, the smallest with a key goes first.
	sqliteListedDead = `id IN ` + sqliteListed + ` AND ` + sqliteRedriveRoom + ` AND e.id IN ` + sqliteListed + `))`
)

const sqliteSetPaused = `UPDATE {queues} SET paused = ?1 WHERE name = {name}`

const sqliteTrim = `DELETE FROM {done} WHERE rowid IN (SELECT rowid FROM {done} WHERE ended_at < {now} - ?1 ORDER BY ended_at LIMIT ?2) RETURNING id`

func (q *sqliteQueue) Version() Statement { return Statement{Text: q.version} }

func (q *sqliteQueue) Record(version int) Statement {
	return Statement{Text: q.record, Args: []any{int64(version)}}
}

func (q *sqliteQueue) Stats(limit int) Statement {
	return Statement{Text: q.stats, Args: []any{int64(limit)}}
}

func (q *sqliteQueue) Peek(s State, n int) Statement {
	return Statement{Text: q.peek[s], Args: []any{int64(n)}}
}

func (q *sqliteQueue) Get(id [16]byte) Statement {
	return Statement{Text: q.get, Args: []any{id[:]}}
}

func (q *sqliteQueue) Cancel(ids [][16]byte) Statement {
	return Statement{Text: q.cancel, Args: []any{packSQLiteIDs(ids)}}
}

func (q *sqliteQueue) Purge(s State, n int, w Window) Statement {
	return Statement{Text: q.purge[s], Args: []any{int64(n)}}
}

func (q *sqliteQueue) Redrive(n int, ids [][16]byte, w Window) Statement {
	mark := Statement{Text: q.redriveOldest, Args: []any{int64(n)}}
	if len(ids) > 0 {
		mark = Statement{Text: q.redriveListed, Args: []any{packSQLiteIDs(ids)}}
	}
	return Statement{Text: q.redriveDelete, Prior: []Statement{mark, {Text: q.redriveInsert}}}
}

func (q *sqliteQueue) Pause() Statement {
	return Statement{Text: q.setPaused, Args: []any{int64(1)}}
}

func (q *sqliteQueue) Resume() Statement {
	return Statement{Text: q.setPaused, Args: []any{int64(0)}}
}

func (q *sqliteQueue) Trim(age time.Duration, n int, after int64) Statement {
	return Statement{Text: q.trim, Args: []any{milliseconds(age), int64(n)}}
}

func jsonStrings(s []string) string {
	if len(s) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(s) // strings always marshal
	return string(b)
}
