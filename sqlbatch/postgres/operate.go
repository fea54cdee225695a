package postgres

import (
	"math"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// policy: see the words of its columns in build.Policy.Words.
var policy = build.Policy{
	Types: [3]string{"smallint", "integer", "bigint"},
	Args:  [3]string{"$%d::smallint", "$%d::integer", "$%d::bigint"},
}

const recordText = `INSERT INTO {queues} AS s (name, version, created_at, kind, slots, shard, shards, shard_set, {policy columns})
VALUES ({name}, ${after policy}::integer, {clock}, {kind and slots}, {shard values}, {policy args})
ON CONFLICT (name) DO UPDATE SET version = greatest(s.version, excluded.version), {policy excluded}`

const (
	pauseText  = `UPDATE {queues} SET paused = true, paused_at = {clock}, paused_by = $1::text, pause_reason = $2::text WHERE name = {name}`
	resumeText = `UPDATE {queues} SET paused = false, paused_at = NULL, paused_by = NULL, pause_reason = NULL WHERE name = {name}`
)

// cancelText deletes by the primary key, whatever the fence; its path and locks are those of ackText.
const cancelText = `DELETE FROM {live} AS q
USING unnest((SELECT $1::uuid[])) AS a (id)
WHERE q.id = ANY (ARRAY[a.id])
RETURNING uuid_send(q.id)`

// runNowText has the path and locks of cancelText: no index has the difference. due_at of a leased message is in the past.
const runNowText = `UPDATE {live} AS q
SET due_at = {now}
FROM unnest((SELECT $1::uuid[])) AS a (id)
WHERE q.id = ANY (ARRAY[a.id]) AND q.due_at - {now} > 0
RETURNING uuid_send(q.id)`

// surrenderText has the path and locks of cancelText. On an ordered queue the row keeps the consumer, so that the next owner of the slot
// counts the lapse.
func surrenderText(ordered bool) string {
	set := lapsed
	if ordered {
		set = `lease_until = {now}`
	}
	return `UPDATE {live} AS q
SET ` + set + `
FROM unnest((SELECT $1::uuid[])) AS a (id)
WHERE q.id = ANY (ARRAY[a.id]) AND q.leased_by = $2::uuid AND q.lease_until > {now}
RETURNING uuid_send(q.id)`
}

// Purges and trims skip locked rows: maintenance never blocks. The ids go through an array, whose length the planner
// does not know and estimates as ten, so it probes the primary key. Each step begins in the index where the previous
// one ended.
//
// $2, $3 and $4 are a Window, $5 its priority. The time of a message's claim is in its fence, whose salt is at least 1:
// see FenceBits.
func purgeTexts() map[sqlbatch.State]string {
	live := func(from, condition string) string {
		return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
)
DELETE FROM {live}
WHERE id = ANY (ARRAY(
  SELECT id FROM (
    SELECT id FROM {live}
    WHERE (due_at, uuid_send(id)) > (` + from + `, uuid_send($3::uuid)) AND ` + strings.ReplaceAll(condition, "{lane}", "priority = $5::integer") + `
    ORDER BY due_at, uuid_send(id) LIMIT {rows} FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT n FROM t)))
RETURNING uuid_send(id), due_at`
	}
	ended := func(table string) string {
		return `DELETE FROM ` + table + `
WHERE id = ANY (ARRAY(
  SELECT id FROM ` + table + ` WHERE (ended_at, id) > ($2::bigint, $3::uuid) AND ended_at < (SELECT $4::bigint)
  ORDER BY ended_at, id LIMIT $1::integer FOR UPDATE SKIP LOCKED))
RETURNING uuid_send(id), ended_at`
	}
	const after, afterNow = `$2::bigint`, `greatest($2::bigint, (SELECT now FROM t))`
	return map[sqlbatch.State]string{
		sqlbatch.Ready:     live(after, ready+` AND due_at < (SELECT $4::bigint)`),
		sqlbatch.Scheduled: live(afterNow, scheduled+` AND enqueued_at < (SELECT $4::bigint)`),
		sqlbatch.Leased:    live(after, leased+` AND (fence - 1) >> {fence bits} < (SELECT $4::bigint)`),
		sqlbatch.Dead:      ended(`{dead}`),
		sqlbatch.Done:      ended(`{done}`),
	}
}

func (q *queue) Purge(s sqlbatch.State, n int, w sqlbatch.Window) sqlbatch.Statement {
	args := append([]any{int64(min(n, maxRows))}, window(w)...)
	switch {
	case s.Live() && q.ordered:
		args = []any{args[0], w.After, args[3], build.Upto(w.Upto)}
	case s.Live():
		args = append(args, int64(w.Priority))
	}
	return sqlbatch.Statement{Text: q.purge[s], Args: args}
}

// window returns the values of a Window except for its priority.
func window(w sqlbatch.Window) []any {
	at, id := w.First(math.MinInt64)
	return []any{at, hexID(id), before(w)}
}

// before returns the end of a window, or the end of time.
func before(w sqlbatch.Window) int64 {
	if w.Before == 0 {
		return math.MaxInt64
	}
	return w.Before
}

// trimText deletes the old end of a table of ended messages.
func trimText(table string) string {
	return `DELETE FROM ` + table + `
WHERE id = ANY (ARRAY(
  SELECT id FROM ` + table + ` WHERE ended_at >= (SELECT $3::bigint) AND ended_at < {now} - $1::bigint
  ORDER BY ended_at, id LIMIT $2::integer FOR UPDATE SKIP LOCKED))
RETURNING uuid_send(id), ended_at`
}

func (q *queue) Trim(s sqlbatch.State, age time.Duration, n int, after int64) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.trim[s], Args: []any{build.Milliseconds(age), int64(n), after}}
}

// A redrive moves rows in one statement. A message stays dead if a live one has its id (an INSERT repeated after an
// unknown outcome) or its key, or if a dead one with the same key and a smaller id goes first, unless that one died
// after the window. ON CONFLICT decides if another session was quicker. A moved row is due now, with no attempts, no
// expiry and a higher fence than any earlier lease of it.
//
// OFFSET 0 keeps each subquery a probe of an index for each row. Without it the planner joins, and if its statistics
// call the live table empty, as it was before, it reads all of that table for each dead message: the cost of a redrive
// would be quadratic.
const (
	redriveRoom = `NOT EXISTS (SELECT 1 FROM {live} AS q WHERE q.id = d.id OFFSET 0)
    AND (d.dedup_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM {live} AS q WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL OFFSET 0))`

	redriveMove = `moved AS (
  INSERT INTO {live} (id, priority, due_at, enqueued_at, fence, dedup_key, type, last_error, history, headers, body{order})
  SELECT id, priority, {now}, enqueued_at, fence + 1, dedup_key, type, last_error, history, headers, body{order}
  FROM chosen
  ON CONFLICT DO NOTHING
  RETURNING id
){count redrive}
DELETE FROM {dead}
WHERE id = ANY (ARRAY(SELECT id FROM moved))
RETURNING uuid_send(id), ended_at`

	// By the time of death, skipping locked rows.
	redriveText = `WITH chosen AS MATERIALIZED (
  SELECT d.* FROM {dead} AS d
  WHERE (d.ended_at, d.id) > ($2::bigint, $3::uuid) AND d.ended_at < (SELECT $4::bigint)
    AND ` + redriveRoom + `
    AND (d.dedup_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM {dead} AS e
      WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id AND e.ended_at < (SELECT $4::bigint) OFFSET 0))
  ORDER BY d.ended_at, d.id LIMIT $1::integer FOR UPDATE OF d SKIP LOCKED
),
` + redriveMove

	// By the primary key, waiting for locked rows. The smallest id of the list has a key first. Citus rejects a list that
	// is joined with locked rows.
	redriveIDsText = `WITH chosen AS MATERIALIZED (
  SELECT d.* FROM {dead} AS d
  WHERE d.id = ANY (ARRAY(SELECT a.id FROM unnest($1::uuid[]) AS a (id)))
    AND ` + redriveRoom + `
  ORDER BY d.id
  FOR UPDATE OF d
),
` + redriveMove
)

func (q *queue) Redrive(n int, ids [][16]byte, w sqlbatch.Window) sqlbatch.Statement {
	if len(ids) > 0 {
		return sqlbatch.Statement{Text: q.redriveIDs, Args: []any{packIDs(ids)}}
	}
	return sqlbatch.Statement{Text: q.redrive, Args: append([]any{int64(n)}, window(w)...)}
}

const configureText = `UPDATE {queues} SET {policy set}
WHERE name = {name}`

func (q *queue) Configure(p sqlbatch.Policy) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.configure, Args: build.PolicyArgs(p)}
}

func (q *queue) Record(version int, p sqlbatch.Policy) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.record, Args: append(build.PolicyArgs(p), int64(version))}
}

func (q *queue) Pause(by, reason string) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.pause, Args: []any{by, reason}}
}

func (q *queue) Resume() sqlbatch.Statement { return sqlbatch.Statement{Text: q.resume} }

func (q *queue) Cancel(ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.cancel, Args: []any{packIDs(ids)}}
}

func (q *queue) RunNow(ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.runNow, Args: []any{packIDs(ids)}}
}

func (q *queue) Surrender(consumer [16]byte, ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.surrender, Args: []any{packIDs(ids), hexID(consumer)}}
}

// discardText deletes dead messages by the primary key, as cancelText deletes live ones.
const discardText = `DELETE FROM {dead} AS d
USING unnest((SELECT $1::uuid[])) AS a (id)
WHERE d.id = ANY (ARRAY[a.id])
RETURNING uuid_send(d.id)`

func (q *queue) Discard(ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.discard, Args: []any{packIDs(ids)}}
}

const queuesText = `SELECT name FROM {queues} ORDER BY name`

func (q *queue) Queues() sqlbatch.Statement { return sqlbatch.Statement{Text: q.queues} }

// lockText waits for every transaction that has touched the tables, including an open SendTx.
const lockText = `LOCK TABLE {live}, {dead}, {done} IN ACCESS EXCLUSIVE MODE`

func (q *queue) Lock() sqlbatch.Statement { return sqlbatch.Statement{Text: q.lock} }

func dropTexts(ordered bool) []string {
	texts := []string{
		`DELETE FROM {consumers} WHERE queue = {name}`,
		`DELETE FROM {queues} WHERE name = {name}`,
		`DROP VIEW IF EXISTS {messages}`,
		`DROP FUNCTION IF EXISTS {send}`,
		`DROP TABLE {live}, {dead}, {done}`,
		`DELETE FROM {samples} WHERE queue = {name}`,
	}
	if ordered {
		texts = append(texts, `DELETE FROM {slots} WHERE queue = {name}`, `DROP SEQUENCE {numbers}`)
	}
	return texts
}

func (q *queue) Drop() (statements []sqlbatch.Statement) {
	for _, text := range q.drop {
		statements = append(statements, sqlbatch.Statement{Text: text})
	}
	return statements
}
