package sqlbatch

import (
	"database/sql"
	"time"
)

// recordText seeks the key of the table of queues. UPDLOCK and SERIALIZABLE hold
// the place of the row until it is there, so that two first records of one queue
// do not collide. Each of the two statements may be repeated.
const recordText = session + `INSERT INTO {queues} WITH (ROWLOCK) (name, version, paused, created_at)
SELECT {name}, @version, 0, SYSUTCDATETIME()
WHERE NOT EXISTS (SELECT 1 FROM {queues} AS s WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE s.name = {name});
UPDATE {queues} WITH (ROWLOCK)
SET version = @version
WHERE name = {name};
`

func (q *sqlServerQueue) Record(version int) Statement {
	return call(q.record, "@version int", sql.Named("version", int32(version)))
}

// pauseText and resumeText take an X lock on the queue's row in the table of
// queues, which claims read.
const (
	pauseText = session + `UPDATE {queues} WITH (ROWLOCK)
SET paused = 1
WHERE name = {name};
`
	resumeText = session + `UPDATE {queues} WITH (ROWLOCK)
SET paused = 0
WHERE name = {name};
`
)

func (q *sqlServerQueue) Pause() Statement { return call(q.pause, "") }

func (q *sqlServerQueue) Resume() Statement { return call(q.resume, "") }

// cancelText deletes by PK, whatever the fence; path and locks are those of
// ackText.
const cancelText = session + `DELETE q
OUTPUT deleted.id
` + fromIDs + `INNER JOIN {live} AS q WITH (ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

func (q *sqlServerQueue) Cancel(ids [][16]byte) Statement {
	return call(q.cancel, "@ids varbinary(8000)", sql.Named("ids", packIDs(ids)))
}

// Purges come by the index that claims, peeks and trims use, and skip what is
// locked (READPAST): maintenance waits for nobody. UPDLOCK makes the read lock,
// so that READPAST works where READ_COMMITTED_SNAPSHOT is on. Telling scheduled
// from leased looks up each row that is due in the future.
var purgeTexts = map[State]string{
	Ready:     purgeLive + `WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at <= @now;` + "\n",
	Scheduled: purgeLive + `WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at > @now AND q.leased_by IS NULL;` + "\n",
	Leased:    purgeLive + `WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at > @now AND q.leased_by IS NOT NULL;` + "\n",
	Dead: session + `WITH c AS (
    SELECT TOP (@n) id
    FROM {dead} WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({dead ended}))
    ORDER BY ended_at, id
)
DELETE c
OUTPUT deleted.id;
`,
	Done: session + `WITH c AS (
    SELECT TOP (@n) id
    FROM {done} WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({done pk}))
    ORDER BY ended_at, id
)
DELETE c
OUTPUT deleted.id;
`,
}

const purgeLive = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
DELETE TOP (@n) q
OUTPUT deleted.id
FROM {live} AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({ready}), FORCESEEK)
`

func (q *sqlServerQueue) Purge(s State, n int, w Window) Statement {
	return call(q.purge[s], "@n bigint", sql.Named("n", int64(n)))
}

// redriveText walks the dead table from the end that died first and moves rows in
// one statement: OUTPUT INTO and OUTPUT. It skips what is locked.
//
// A message stays dead while it cannot live again: a live one has its id (an
// INSERT repeated after an unknown outcome) or its key, or a dead one with the
// same key and a smaller id goes first. One duplicate would otherwise undo
// the whole batch with 2601 or 2627. The probes seek PK, UX and the dead table's
// index of keys.
const redriveText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
WITH c AS (
    SELECT TOP (@n) ` + redriveColumns + `
    FROM {dead} AS d WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({dead ended}))
    WHERE ` + redriveRoom + `
      AND NOT EXISTS (
        SELECT 1
        FROM {dead} AS e WITH (INDEX ({dead key}), FORCESEEK)
        WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id)
    ORDER BY d.ended_at, d.id
)
DELETE c
` + redriveMoved + `;
`

// redriveIDsText finds the dead by their key and waits for locked ones. Among the
// ids of the list only, the smallest with a key goes first.
const redriveIDsText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
DELETE d
` + redriveMoved + `
` + fromIDs + `INNER JOIN {dead} AS d WITH (UPDLOCK, ROWLOCK, INDEX ({dead pk}), FORCESEEK) ON d.id = a.id
WHERE ` + redriveRoom + `
  AND (d.dedup_key IS NULL OR NOT EXISTS (
    SELECT 1
    ` + fromIDs + `INNER JOIN {dead} AS e WITH (INDEX ({dead pk}), FORCESEEK) ON e.id = a.id
    WHERE e.dedup_key = d.dedup_key AND e.id < d.id))
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

const (
	redriveColumns = `d.id, d.priority, d.fence, d.enqueued_at, d.dedup_key, d.headers, d.body, d.last_error`

	redriveRoom = `NOT EXISTS (
        SELECT 1
        FROM {live} AS q WITH (INDEX ({pk}), FORCESEEK)
        WHERE q.id = d.id)
      AND NOT EXISTS (
        SELECT 1
        FROM {live} AS q WITH (INDEX ({key}), FORCESEEK)
        WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)`

	// A moved row is due now, with no attempts and a higher fence than any lease
	// of its former life.
	redriveMoved = `OUTPUT deleted.id, deleted.priority, @now, deleted.enqueued_at, deleted.fence + 1, 0,
       deleted.dedup_key, deleted.headers, deleted.body, deleted.last_error
INTO {live} (id, priority, visible_at, enqueued_at, fence, attempts, dedup_key, headers, body, last_error)
OUTPUT deleted.id`
)

func (q *sqlServerQueue) Redrive(n int, ids [][16]byte, w Window) Statement {
	if len(ids) > 0 {
		return call(q.redriveIDs, "@ids varbinary(8000)", sql.Named("ids", packIDs(ids)))
	}
	return call(q.redrive, "@n bigint", sql.Named("n", int64(n)))
}

// trimText deletes the old end of the done table's clustered key (ended_at, id): a
// range of neighbouring rows, of which locked ones are skipped.
const trimText = session + `DECLARE @cut datetime2(3) = DATEADD(millisecond, -@age_ms, DATEADD(day, -@age_days, SYSUTCDATETIME()));
WITH c AS (
    SELECT TOP (@n) id
    FROM {done} WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({done pk}), FORCESEEK)
    WHERE ended_at <= @cut
    ORDER BY ended_at, id
)
DELETE c
OUTPUT deleted.id;
`

func (q *sqlServerQueue) Trim(age time.Duration, n int, after int64) Statement {
	days, ms := span(milliseconds(age))
	return call(q.trim, "@n bigint, @age_days int, @age_ms int",
		sql.Named("n", int64(n)), sql.Named("age_days", days), sql.Named("age_ms", ms))
}
