package sqlite

import (
	"fmt"
	"math"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Statements of operators and of housekeeping on SQLite.

// policy: see the words of its columns in build.Policy.Words.
var policy = build.Policy{
	Types: [3]string{"INTEGER", "INTEGER", "INTEGER"},
	Args:  [3]string{"?%d", "?%d", "?%d"},
}

const recordText = `INSERT INTO {queues} (name, version, created_at, kind, slots, shard, shards, shard_set, {policy columns})
VALUES ({name}, ?{after policy}, {now}, {kind and slots}, {shard values}, {policy args})
ON CONFLICT (name) DO UPDATE SET version = max(version, excluded.version), {policy excluded}`

const cancelText = `DELETE FROM {live} WHERE id IN ` + listed + ` RETURNING id`

// due_at of a leased message is in the past.
const runNowText = `UPDATE {live} SET due_at = {now} WHERE id IN ` + listed + ` AND due_at > {now} RETURNING id`

// surrenderText: on an ordered queue the row keeps the consumer, so that the next owner of the slot counts the lapse.
func surrenderText(ordered bool) string {
	set := lapsed()
	if ordered {
		set = `lease_until = {now}`
	}
	return `UPDATE {live} AS q SET ` + set + ` WHERE id IN ` + listed + ` AND leased_by = ?2 AND lease_until > {now} RETURNING id`
}

const discardText = `DELETE FROM {dead} WHERE id IN ` + listed + ` RETURNING id`

const queuesText = `SELECT name FROM {queues} ORDER BY name`

// shrinkText moves the last pages of the file to free ones before them, and cuts the file.
var shrinkText = fmt.Sprintf(`PRAGMA {database}.incremental_vacuum(%d)`, sqlbatch.ShrinkPages)

// Drop: there is no other writer meanwhile, so Lock does nothing.
const (
	dropConsumers = `DELETE FROM {consumers} WHERE queue = {name}`
	dropSamples   = `DELETE FROM {samples} WHERE queue = {name}`
	dropRecord    = `DELETE FROM {queues} WHERE name = {name}`
	dropView      = `DROP VIEW IF EXISTS {messages}`
	dropLive      = `DROP TABLE {live}`
	dropDead      = `DROP TABLE {dead}`
	dropDone      = `DROP TABLE {done}`
)

// Purge: ?2, ?3 and ?4 are a Window, ?5 its priority. A scan of an index begins at only one bound: for scheduled
// messages it is the later one. A fence contains the time of its claim.
const (
	purgeLive = `DELETE FROM {live} WHERE rowid IN (SELECT rowid FROM {live} INDEXED BY {due_ix_unqualified}
  WHERE priority = ?5 + 0 AND (due_at, id) > (`
	purgeEnd = ` ORDER BY due_at, id LIMIT ?1 + 0)
RETURNING id, due_at`

	purgeReady     = purgeLive + `?2, ?3) AND due_at <= min({now}, ?4 - 1) AND lease_until <= {now}` + purgeEnd
	purgeScheduled = purgeLive + `max(?2, {now}), ?3) AND +due_at > {now} AND lease_until <= {now} AND enqueued_at < ?4` + purgeEnd
	purgeLeased    = purgeLive + `?2, ?3) AND due_at <= {now} AND lease_until > {now} AND (fence - 1) >> 20 < ?4` + purgeEnd

	purgeEnded = ` WHERE (ended_at, id) > (?2, ?3) AND ended_at < ?4 ORDER BY ended_at, id LIMIT ?1 + 0)
RETURNING id, ended_at`
	purgeDead = `DELETE FROM {dead} WHERE rowid IN (SELECT rowid FROM {dead}` + purgeEnded
	purgeDone = `DELETE FROM {done} WHERE rowid IN (SELECT rowid FROM {done}` + purgeEnded
)

// Redrive marks the messages that it moves by a negative time that still contains the time of their end, inserts them,
// and deletes them: the selection could not be repeated once they are live.
//
// A message stays dead if a live one has its id (an INSERT repeated after an unknown outcome) or its key, or if a dead
// one with the same key and a smaller id goes first, unless that one died after the window.
const (
	redriveMark   = `UPDATE {dead} SET ended_at = -1 - ended_at WHERE rowid IN (SELECT rowid FROM {dead} AS d WHERE `
	redriveInsert = `INSERT INTO {live} (id, priority, due_at, enqueued_at, fence, dedup_key, type, last_error, history, headers, body{order})
SELECT id, priority, {now}, enqueued_at, fence + 1, dedup_key, type, last_error, history, headers, body{order} FROM {dead} WHERE ended_at < 0`
	redriveDelete = `DELETE FROM {dead} WHERE ended_at < 0 RETURNING id, -1 - ended_at`

	// redriveCount increments the number of redrives of an ordered queue if a message moves.
	redriveCount = `UPDATE {queues} SET redriven = redriven + 1 WHERE name = {name} AND EXISTS (SELECT 1 FROM {dead} WHERE ended_at < 0)`

	redriveRoom = `NOT EXISTS (SELECT 1 FROM {live} AS q WHERE q.id = d.id)
  AND NOT EXISTS (SELECT 1 FROM {live} AS q WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM {dead} AS e WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id`

	oldestDead = `(ended_at, id) > (?2, ?3) AND ended_at < ?4
  AND ` + redriveRoom + ` AND e.ended_at < ?4)
ORDER BY ended_at, id LIMIT ?1 + 0)`
	// Only among the ids of the list, the smallest with a key goes first.
	listedDead = `id IN ` + listed + ` AND ` + redriveRoom + ` AND e.id IN ` + listed + `))`
)

const (
	pauseText  = `UPDATE {queues} SET paused = 1, paused_at = {now}, paused_by = ?1, pause_reason = ?2 WHERE name = {name}`
	resumeText = `UPDATE {queues} SET paused = 0, paused_at = NULL, paused_by = NULL, pause_reason = NULL WHERE name = {name}`
)

// trimText deletes the old end of a table of ended messages.
func trimText(table string) string {
	return `DELETE FROM ` + table + ` WHERE rowid IN (SELECT rowid FROM ` + table + ` WHERE ended_at >= ?3 AND ended_at < {now} - ?1 ORDER BY ended_at, id LIMIT ?2 + 0)
RETURNING id, ended_at`
}

const configureText = `UPDATE {queues} SET {policy set}
WHERE name = {name}`

func (q *queue) Configure(p sqlbatch.Policy) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.configure, Args: build.PolicyArgs(p)}
}

func (q *queue) Record(version int, p sqlbatch.Policy) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.record, Args: append(build.PolicyArgs(p), int64(version))}
}

func (q *queue) Cancel(ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.cancel, Args: []any{packIDs(ids)}}
}

func (q *queue) Surrender(consumer [16]byte, ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.surrender, Args: []any{packIDs(ids), consumer[:]}}
}

func (q *queue) RunNow(ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.runNow, Args: []any{packIDs(ids)}}
}

func (q *queue) Purge(s sqlbatch.State, n int, w sqlbatch.Window) sqlbatch.Statement {
	args := append([]any{int64(n)}, window(w)...)
	if s.Live() && q.ordered {
		return sqlbatch.Statement{Text: q.purge[s], Args: []any{args[0], w.After, args[3], build.Upto(w.Upto)}}
	}
	if s.Live() {
		args = append(args, int64(w.Priority))
	}
	return sqlbatch.Statement{Text: q.purge[s], Args: args}
}

// window returns the values of a Window except for its priority.
func window(w sqlbatch.Window) []any {
	at, id := w.First(math.MinInt64)
	return []any{at, id[:], before(w)}
}

func before(w sqlbatch.Window) int64 {
	if w.Before == 0 {
		return math.MaxInt64
	}
	return w.Before
}

func (q *queue) Redrive(n int, ids [][16]byte, w sqlbatch.Window) sqlbatch.Statement {
	mark := sqlbatch.Statement{Text: q.redriveOldest, Args: append([]any{int64(n)}, window(w)...)}
	if len(ids) > 0 {
		mark = sqlbatch.Statement{Text: q.redriveListed, Args: []any{packIDs(ids)}}
	}
	prior := []sqlbatch.Statement{mark, {Text: q.redriveInsert}}
	if q.ordered {
		prior = append(prior, sqlbatch.Statement{Text: q.redriveCount})
	}
	return sqlbatch.Statement{Text: q.redriveDelete, Prior: prior}
}

func (q *queue) Pause(by, reason string) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.pause, Args: []any{by, reason}}
}

func (q *queue) Resume() sqlbatch.Statement { return sqlbatch.Statement{Text: q.resume} }

func (q *queue) Trim(s sqlbatch.State, age time.Duration, n int, after int64) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.trim[s], Args: []any{build.Milliseconds(age), int64(n), after}}
}

func (q *queue) Discard(ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.discard, Args: []any{packIDs(ids)}}
}

func (q *queue) Queues() sqlbatch.Statement { return sqlbatch.Statement{Text: q.queues} }

func (q *queue) Lock() sqlbatch.Statement { return sqlbatch.Statement{Text: `SELECT 1`} }

// SQLite reuses the space of deleted rows immediately.
func (q *queue) Bloat() sqlbatch.Statement  { return sqlbatch.Statement{} }
func (q *queue) Vacuum() sqlbatch.Statement { return sqlbatch.Statement{} }

func (q *queue) Shrink() sqlbatch.Statement { return sqlbatch.Statement{Text: q.shrink} }

func (q *queue) Drop() (statements []sqlbatch.Statement) {
	for _, text := range q.drop {
		statements = append(statements, sqlbatch.Statement{Text: text})
	}
	return statements
}
