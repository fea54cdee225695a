package sqlserver

import (
	"database/sql"
	"math"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// policy: see the words of its columns in build.Policy.Words.
var policy = build.Policy{
	Types: [3]string{"bit", "int", "bigint"},
	Args:  [3]string{"@%c", "@%c", "@%c"},
	Reads: [3]string{0: "CONVERT(int, %c) AS %c"},
}

// recordText seeks the key of the table of queues. UPDLOCK and SERIALIZABLE lock the place of the row until it exists, so
// that two first records of one queue do not collide. Each of the two statements can be repeated.
const recordText = session + `INSERT INTO {queues} WITH (ROWLOCK) (name, version, paused, created_at, kind, slots, shard, shards, shard_set, {policy columns})
SELECT {name}, 0, 0, SYSUTCDATETIME(), {kind and slots}, {shard values}, {policy values}
WHERE NOT EXISTS (SELECT 1 FROM {queues} AS s WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE s.name = {name});
UPDATE {queues} WITH (ROWLOCK)
SET version = CASE WHEN version > @version THEN version ELSE @version END,
    {policy set}
WHERE name = {name};
`

// configureText changes only the policy.
const configureText = session + `UPDATE {queues} WITH (ROWLOCK)
SET {policy set}
WHERE name = {name};
`

var policyDeclaration = policy.Each("%a bigint", ", ")

func (q *queue) Record(version int, p sqlbatch.Policy) sqlbatch.Statement {
	return call(q.record, "@version int, "+policyDeclaration, append([]any{sql.Named("version", int32(version))}, policyArgs(p)...)...)
}

func (q *queue) Configure(p sqlbatch.Policy) sqlbatch.Statement {
	return call(q.configure, policyDeclaration, policyArgs(p)...)
}

func policyArgs(p sqlbatch.Policy) (args []any) {
	names := strings.Split(policy.Each("%c", ","), ",")
	for i, value := range build.PolicyArgs(p) {
		args = append(args, sql.Named(names[i], value))
	}
	return args
}

// pauseText and resumeText take an X lock on the queue's row in the table of
// queues, which claims read.
const (
	pauseText = session + `UPDATE {queues} WITH (ROWLOCK)
SET paused = 1, paused_at = SYSUTCDATETIME(), paused_by = @paused_by, pause_reason = @reason
WHERE name = {name};
`
	resumeText = session + `UPDATE {queues} WITH (ROWLOCK)
SET paused = 0, paused_at = NULL, paused_by = NULL, pause_reason = NULL
WHERE name = {name};
`
)

func (q *queue) Pause(by, reason string) sqlbatch.Statement {
	return call(q.pause, "@paused_by nvarchar(400), @reason nvarchar(400)", sql.Named("paused_by", by), sql.Named("reason", reason))
}

func (q *queue) Resume() sqlbatch.Statement { return call(q.resume, "") }

// cancelText deletes by PK, whatever the fence; its path and locks are those of ackText.
const cancelText = session + `DELETE q
OUTPUT deleted.id
` + fromIDs + `INNER JOIN {live} AS q WITH (ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

func (q *queue) Cancel(ids [][16]byte) sqlbatch.Statement {
	return call(q.cancel, "@ids varbinary(8000)", sql.Named("ids", packIDs(ids)))
}

// runNowText has the path and locks of cancelText, and then an X lock on the entry that moves. due_at of a leased message is in the past.
const runNowText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
UPDATE q
SET due_at = @now
OUTPUT deleted.id
` + fromIDs + `INNER JOIN {live} AS q WITH (ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id AND q.due_at > @now
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

func (q *queue) RunNow(ids [][16]byte) sqlbatch.Statement {
	return call(q.runNow, "@ids varbinary(8000)", sql.Named("ids", packIDs(ids)))
}

// surrenderText has the path and locks of cancelText. On an ordered queue the row keeps the consumer, so that the next owner of the slot
// counts the lapse.
func surrenderText(ordered bool) string {
	set, by := lapsed, holder("q.leased_by")
	if ordered {
		set, by = `lease_until = @now`, ""
	}
	return session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
UPDATE q
SET ` + set + `
OUTPUT deleted.id
` + fromIDs + `INNER JOIN {live} AS q WITH (ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id AND q.leased_by = @by AND q.lease_until > @now
` + by + `OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`
}

func (q *queue) Surrender(consumer [16]byte, ids [][16]byte) sqlbatch.Statement {
	return call(q.surrender, "@ids varbinary(8000), @by binary(16)", sql.Named("ids", packIDs(ids)), sql.Named("by", consumer[:]))
}

// Purges use the index that claims, peeks and trims use, and skip locked rows (READPAST). XLOCK makes the read take
// locks, so that READPAST works if READ_COMMITTED_SNAPSHOT is on, and that rows which readers have locked are skipped too. Live and dead messages are found as a claim finds them,
// without a lasting lock on skipped rows, and checked again under the lock: each statement locks a row by its key first,
// and its entries in other indexes after that.
//
// A step begins where the previous one ended, for live messages in their priority, so that it walks neither over the ghosts
// of that step nor over the rows that it skipped. A live message stays if it entered its state after the first step began
// (@before): due later, sent later, or claimed later, according to the fence (see FenceBits).
var purgeTexts = map[sqlbatch.State]string{
	sqlbatch.Ready: purgeOpen + `DECLARE @last datetime2(3) = CASE WHEN @before <= @now THEN DATEADD(millisecond, -1, @before) ELSE @now END;
` + purgeLive + ` AND i.due_at <= @last AND i.lease_until <= @now AND u.due_at <= @last AND u.lease_until <= @now` + purgeEnd,
	sqlbatch.Scheduled: purgeOpen + `IF @after < @now SET @after = @now;
` + purgeLive + ` AND i.enqueued_at < @before AND u.due_at > @now AND u.lease_until <= @now` + purgeEnd,
	sqlbatch.Leased: purgeOpen + purgeLive + ` AND i.due_at <= @now AND i.lease_until > @now AND i.fence <= @mark AND u.lease_until > @now AND u.fence <= @mark` + purgeEnd,
	sqlbatch.Dead:   settling + window + deleteDead(inWindow),
	sqlbatch.Done: settling + window + `WITH c AS (
    SELECT TOP (@n) id, ended_at
    FROM {done} WITH (XLOCK, READPAST, ROWLOCK, INDEX ({done pk}), FORCESEEK)
    WHERE ended_at >= @after AND (ended_at > @after OR id > @after_id) AND ended_at < @before
    ORDER BY ended_at, id
)
DELETE c
` + ended + `;
`,
}

const (
	purgeOpen = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
` + window
	purgeLive = `DELETE q
OUTPUT deleted.id, DATEDIFF_BIG(millisecond, '19700101', deleted.due_at) AS place
FROM (
    SELECT TOP (@n) u.id
    FROM {live} AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ({due}), FORCESEEK)
    INNER JOIN {live} AS u WITH (XLOCK, READPAST, ROWLOCK, INDEX ({pk}), FORCESEEK) ON u.id = i.id
    WHERE i.priority = @priority AND i.due_at >= @after AND (i.due_at > @after OR i.id > @after_id)`
	purgeEnd = `
    ORDER BY i.due_at, i.id
) AS a
INNER JOIN {live} AS q WITH (UPDLOCK, ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id
` + fromListOptions + `;
`
)

// inWindow is a condition on the entries of the index of ends.
const inWindow = `i.ended_at >= @after AND (i.ended_at > @after OR i.id > @after_id) AND i.ended_at < @before`

// fromEnded has the dead messages in the order of their ends, d by its key.
const fromEnded = `FROM {dead} AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ({dead ended}), FORCESEEK)
INNER JOIN {dead} AS d WITH (XLOCK, READPAST, ROWLOCK, INDEX ({dead pk}), FORCESEEK) ON d.id = i.id AND d.ended_at = i.ended_at
`

// deleteDead deletes up to @n dead messages whose entries meet a condition.
func deleteDead(condition string) string {
	return `DELETE q
` + ended + `
FROM (
` + indent("    ", `SELECT TOP (@n) d.id
`+fromEnded+`WHERE `+condition+`
ORDER BY i.ended_at, i.id
`) + `) AS a
INNER JOIN {dead} AS q WITH (UPDLOCK, ROWLOCK, INDEX ({dead pk}), FORCESEEK) ON q.id = a.id
` + fromListOptions + `;
`
}

// ended returns the deleted messages, and when they had ended.
const ended = `OUTPUT deleted.id, DATEDIFF_BIG(millisecond, '19700101', deleted.ended_at) AS place`

// window makes times from the bounds that windowOf passes.
const (
	window = `DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
DECLARE @before datetime2(3) = DATEADD(millisecond, @before_ms, DATEADD(day, @before_days, @epoch));
`
	windowDeclaration = ", @after_days int, @after_ms int, @after_id binary(16), @before_days int, @before_ms int"
)

// beginning and noEnd are the first and the last millisecond that a datetime2 has.
const (
	beginning = -719162 * dayMillis
	noEnd     = 2932897*dayMillis - 1
)

func windowOf(w sqlbatch.Window) []any {
	if w.Before <= 0 {
		w.Before = noEnd
	}
	after, id := w.First(beginning)
	after = min(after, noEnd)
	days := after / dayMillis
	if after%dayMillis < 0 {
		days-- // before 1970
	}
	beforeDays, beforeMillis := span(min(w.Before, noEnd))
	return []any{
		sql.Named("after_days", int32(days)), sql.Named("after_ms", int32(after-days*dayMillis)), sql.Named("after_id", id[:]),
		sql.Named("before_days", beforeDays), sql.Named("before_ms", beforeMillis),
	}
}

// lastFence is the greatest fence that a claim can have assigned before a time: the salt is at least 1.
func lastFence(before int64) int64 {
	if before <= 0 || before > math.MaxInt64>>sqlbatch.FenceBits {
		return math.MaxInt64
	}
	return before << sqlbatch.FenceBits
}

func (q *queue) Purge(s sqlbatch.State, n int, w sqlbatch.Window) sqlbatch.Statement {
	if s.Live() && q.ordered {
		return q.purgeSeq(s, n, w)
	}
	declaration, args := "@n bigint"+windowDeclaration, append([]any{sql.Named("n", int64(n))}, windowOf(w)...)
	if s.Live() {
		declaration, args = declaration+", @priority smallint", append(args, sql.Named("priority", int16(w.Priority)))
	}
	if s == sqlbatch.Leased {
		declaration, args = declaration+", @mark bigint", append(args, sql.Named("mark", lastFence(w.Before)))
	}
	return call(q.purge[s], declaration, args...)
}

// redriveText walks the dead-letter table from its oldest end, from where the previous step ended (@after) to the messages
// that were dead when the first step began (@before). It skips locked rows, and locks rows before their entries, as
// deleteDead does.
//
// A message stays dead if a live one has its id (an INSERT repeated after an unknown outcome) or its key, or if a dead one
// with the same key and a smaller id goes first, unless that one died after the window. One duplicate would otherwise undo
// the whole batch with 2601 or 2627. That still happens if another transaction takes the key or the id after the probe;
// with row versions also if it has done so before and commits later. The caller repeats the statement. The probes seek PK,
// UX and the index of keys of the dead-letter table, from which few rows are looked up.
//
// Two statements insert and delete the chosen messages, because a table with a CHECK cannot be the target of OUTPUT INTO
// (error 333). XLOCK keeps them locked from the choice to the end of the transaction.
const redriveText = settling + redriveNow + window + redriveOpen + `INSERT INTO @chosen (id)
SELECT TOP (@n) d.id
` + fromEnded + `WHERE ` + inWindow + `
  AND ` + redriveRoom + `
  AND NOT EXISTS (
    SELECT 1
    FROM {dead} AS e WITH (READPAST, READCOMMITTEDLOCK, INDEX ({dead key}), FORCESEEK)
    WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id AND e.ended_at < @before)
ORDER BY i.ended_at, i.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
` + redriveClose

// redriveIDsText finds the dead messages by their key and waits for locked ones. Only among the ids of the list, the
// smallest with a key goes first.
const redriveIDsText = session + redriveNow + redriveOpen + `INSERT INTO @chosen (id)
SELECT d.id
` + fromIDs + `INNER JOIN {dead} AS d WITH (UPDLOCK, ROWLOCK, INDEX ({dead pk}), FORCESEEK) ON d.id = a.id
WHERE ` + redriveRoom + `
  AND (d.dedup_key IS NULL OR NOT EXISTS (
    SELECT 1
    ` + fromIDs + `INNER JOIN {dead} AS e WITH (INDEX ({dead pk}), FORCESEEK) ON e.id = a.id
    WHERE e.dedup_key = d.dedup_key AND e.id < d.id))
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
` + redriveClose

const (
	redriveNow = `DECLARE @now datetime2(3) = SYSUTCDATETIME();
`
	redriveOpen = `DECLARE @chosen TABLE (id binary(16) NOT NULL PRIMARY KEY CLUSTERED);
~BEGIN TRANSACTION;
`

	redriveRoom = `NOT EXISTS (
    SELECT 1
    FROM {live} AS q WITH (INDEX ({pk}), FORCESEEK)
    WHERE q.id = d.id)
  AND NOT EXISTS (
    SELECT 1
    FROM {live} AS q WITH (INDEX ({key}), FORCESEEK)
    WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)`

	// A moved row is due now, with no attempts, no lapses, no expiry, and a higher fence than any earlier lease of it.
	redriveClose = `INSERT INTO {live} WITH (ROWLOCK) (id, priority, due_at, enqueued_at, fence, dedup_key, [type], headers, body, last_error, history{order})
SELECT d.id, d.priority, @now, d.enqueued_at, d.fence + 1, d.dedup_key, d.type, d.headers, d.body, d.last_error, d.history{d order}
` + fromChosen + `;
DELETE d
` + ended + `
` + fromChosen + `;
~COMMIT TRANSACTION;
`

	// countRedrive gives the queue a random number, for readers that look for redrives. After a rollback, the next redrive would count to
	// the same number. It follows the insert: see readOpen.
	countRedrive = `IF EXISTS (SELECT 1 FROM @chosen AS c)
    UPDATE s
    SET redriven = CONVERT(bigint, SUBSTRING(CONVERT(binary(16), NEWID()), 9, 7))
    FROM {queues} AS s WITH (ROWLOCK)
    WHERE s.name = {name};
`

	fromChosen = `FROM @chosen AS a
INNER JOIN {dead} AS d WITH (UPDLOCK, ROWLOCK, INDEX ({dead pk}), FORCESEEK) ON d.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN)`
)

func (q *queue) Redrive(n int, ids [][16]byte, w sqlbatch.Window) sqlbatch.Statement {
	if len(ids) > 0 {
		return call(q.redriveIDs, "@ids varbinary(8000)", sql.Named("ids", packIDs(ids)))
	}
	return call(q.redrive, "@n bigint"+windowDeclaration, append([]any{sql.Named("n", int64(n))}, windowOf(w)...)...)
}

// Trims delete the old end of an index (ended_at, id), which is the clustered key of the done table: a range of adjacent
// entries, in which locked ones are skipped. Each step begins where the previous one ended.
const trimOpen = settling + `DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
DECLARE @cut datetime2(3) = DATEADD(millisecond, -@age_ms, DATEADD(day, -@age_days, SYSUTCDATETIME()));
`

var trimTexts = map[sqlbatch.State]string{
	sqlbatch.Dead: trimOpen + deleteDead(`i.ended_at >= @after AND i.ended_at <= @cut`),
	sqlbatch.Done: trimOpen + `WITH c AS (
    SELECT TOP (@n) id, ended_at
    FROM {done} WITH (XLOCK, READPAST, ROWLOCK, INDEX ({done pk}), FORCESEEK)
    WHERE ended_at >= @after AND ended_at <= @cut
    ORDER BY ended_at, id
)
DELETE c
` + ended + `;
`,
}

func (q *queue) Trim(s sqlbatch.State, age time.Duration, n int, after int64) sqlbatch.Statement {
	days, ms := span(build.Milliseconds(age))
	afterDays, afterMillis := span(min(after, noEnd))
	return call(q.trim[s], "@n bigint, @age_days int, @age_ms int, @after_days int, @after_ms int",
		sql.Named("n", int64(n)), sql.Named("age_days", days), sql.Named("age_ms", ms),
		sql.Named("after_days", afterDays), sql.Named("after_ms", afterMillis))
}

// discardText deletes dead messages by their key, and waits for locked ones.
const discardText = session + `DELETE d
OUTPUT deleted.id
` + fromIDs + `INNER JOIN {dead} AS d WITH (ROWLOCK, INDEX ({dead pk}), FORCESEEK) ON d.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

func (q *queue) Discard(ids [][16]byte) sqlbatch.Statement {
	return call(q.discard, "@ids varbinary(8000)", sql.Named("ids", packIDs(ids)))
}

const queuesText = session + `SELECT s.name FROM {queues} AS s ORDER BY s.name;
`

func (q *queue) Queues() sqlbatch.Statement { return call(q.queues, "") }

// lockText takes an X lock on each table until the end of the transaction (HOLDLOCK). It waits for every transaction that
// has accessed one, including an open SendTx, and all others wait for it.
const lockText = session + `SELECT TOP (1) l.id FROM {live} AS l WITH (TABLOCKX, HOLDLOCK);
SELECT TOP (1) d.id FROM {dead} AS d WITH (TABLOCKX, HOLDLOCK);
SELECT TOP (1) d.id FROM {done} AS d WITH (TABLOCKX, HOLDLOCK);
`

func (q *queue) Lock() sqlbatch.Statement { return call(q.lock, "") }

// SQL Server removes ghosts by itself: see docs/engines/sqlserver.md.
func (q *queue) Bloat() sqlbatch.Statement  { return sqlbatch.Statement{} }
func (q *queue) Vacuum() sqlbatch.Statement { return sqlbatch.Statement{} }

// Files belong to the server.
func (q *queue) Shrink() sqlbatch.Statement { return sqlbatch.Statement{} }

const dropText = session + `DELETE m
FROM {consumers} AS m WITH (ROWLOCK)
WHERE m.queue = {name};
DELETE h
FROM {samples} AS h WITH (ROWLOCK)
WHERE h.queue = {name};
DELETE s
FROM {queues} AS s WITH (ROWLOCK)
WHERE s.name = {name};
DROP VIEW IF EXISTS {messages};
DROP PROCEDURE IF EXISTS {send};
DROP TABLE {live};
DROP TABLE {dead};
DROP TABLE {done};
`

// dropOrderedText drops the sequence last, since the table's default refers to it.
const dropOrderedText = dropText + dropSlots + `DROP SEQUENCE {numbers};
`

func (q *queue) Drop() []sqlbatch.Statement { return []sqlbatch.Statement{call(q.drop, "")} }
