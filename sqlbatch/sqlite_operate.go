package sqlbatch

import (
	"encoding/json"
	"math"
	"strings"
	"time"
)

// The statements of operators and of housekeeping on SQLite.

const sqliteRecord = `INSERT INTO {queues} (name, version, created_at) VALUES ({name}, ?1, {now})
ON CONFLICT (name) DO UPDATE SET version = excluded.version`

const sqliteCancel = `DELETE FROM {live} WHERE id IN ` + sqliteListed + ` RETURNING id`

// Purge: what came to its place at ?2 or later stays. A fence tells when its
// message was claimed.
const (
	sqlitePurgeLive = `DELETE FROM {live} WHERE rowid IN (SELECT rowid FROM (
{lanes}
  ) LIMIT ?1 + 0)
RETURNING id, 0`
	sqlitePurgeLane = `    SELECT * FROM (SELECT rowid FROM {range} AND {before} ORDER BY visible_at, id LIMIT ?1 + 0)`

	sqliteBecameDue = `visible_at < ?2`
	sqliteWasSent   = `enqueued_at < ?2`
	sqliteWasLeased = `(fence - 1) >> 20 < ?2`

	sqlitePurgeDead = `DELETE FROM {dead} WHERE rowid IN (SELECT rowid FROM {dead} WHERE ended_at >= ?2 AND ended_at < ?3 ORDER BY ended_at, id LIMIT ?1 + 0)
RETURNING id, ended_at`
	sqlitePurgeDone = `DELETE FROM {done} WHERE rowid IN (SELECT rowid FROM {done} WHERE ended_at >= ?2 AND ended_at < ?3 ORDER BY ended_at, id LIMIT ?1 + 0)
RETURNING id, ended_at`
)

func sqlitePurge(before string, ranges ...string) string {
	return strings.ReplaceAll(sqliteLanes(sqlitePurgeLive, sqlitePurgeLane, ranges...), "{before}", before)
}

// Redrive marks the messages that it moves by a time below zero that still tells
// when they ended, inserts them, and deletes them: the choice could not be made
// again once they are live.
//
// A message stays dead while it cannot live again: a live one has its id (an
// INSERT repeated after an unknown outcome) or its key, or a dead one with the
// same key and a smaller id goes first, unless it died after the window.
const (
	sqliteRedriveMark   = `UPDATE {dead} SET ended_at = -1 - ended_at WHERE rowid IN (SELECT rowid FROM {dead} AS d WHERE `
	sqliteRedriveInsert = `INSERT INTO {live} (id, priority, visible_at, enqueued_at, fence, dedup_key, last_error, headers, body)
SELECT id, priority, {now}, enqueued_at, fence + 1, dedup_key, last_error, headers, body FROM {dead} WHERE ended_at < 0`
	sqliteRedriveDelete = `DELETE FROM {dead} WHERE ended_at < 0 RETURNING id, -1 - ended_at`

	sqliteRedriveRoom = `NOT EXISTS (SELECT 1 FROM {live} AS q WHERE q.id = d.id)
  AND NOT EXISTS (SELECT 1 FROM {live} AS q WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM {dead} AS e WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id`

	sqliteOldestDead = `ended_at >= ?2 AND ended_at < ?3
  AND ` + sqliteRedriveRoom + ` AND e.ended_at < ?3)
ORDER BY ended_at, id LIMIT ?1 + 0)`
	// Among the ids of the list only, the smallest with a key goes first.
	sqliteListedDead = `id IN ` + sqliteListed + ` AND ` + sqliteRedriveRoom + ` AND e.id IN ` + sqliteListed + `))`
)

const sqliteSetPaused = `UPDATE {queues} SET paused = ?1 WHERE name = {name}`

const sqliteTrim = `DELETE FROM {done} WHERE rowid IN (SELECT rowid FROM {done} WHERE ended_at >= ?3 AND ended_at < {now} - ?1 ORDER BY ended_at, id LIMIT ?2 + 0)
RETURNING id, ended_at`

func (q *sqliteQueue) Record(version int) Statement {
	return Statement{Text: q.record, Args: []any{int64(version)}}
}

func (q *sqliteQueue) Cancel(ids [][16]byte) Statement {
	return Statement{Text: q.cancel, Args: []any{packSQLiteIDs(ids)}}
}

func (q *sqliteQueue) Purge(s State, n int, w Window) Statement {
	if s == Dead || s == Done {
		return Statement{Text: q.purge[s], Args: []any{int64(n), w.After, sqliteBefore(w)}}
	}
	return Statement{Text: q.purge[s], Args: []any{int64(n), sqliteBefore(w)}}
}

func sqliteBefore(w Window) int64 {
	if w.Before == 0 {
		return math.MaxInt64
	}
	return w.Before
}

func (q *sqliteQueue) Redrive(n int, ids [][16]byte, w Window) Statement {
	mark := Statement{Text: q.redriveOldest, Args: []any{int64(n), w.After, sqliteBefore(w)}}
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
	return Statement{Text: q.trim, Args: []any{milliseconds(age), int64(n), after}}
}

func jsonStrings(s []string) string {
	if len(s) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(s) // strings always marshal
	return string(b)
}
