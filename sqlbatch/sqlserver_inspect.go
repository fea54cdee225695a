package sqlbatch

import "database/sql"

// fromIDs and fromKeys are the ids of @ids and the keys of @keys.
const (
	fromIDs = `FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@ids, 16 * (x.i + y.i) + 1, 16)) AS id
    FROM ` + numbers + `
    WHERE x.i + y.i < DATALENGTH(@ids) / 16
) AS a
`
	fromKeys = `FROM (
    SELECT CONVERT(varbinary(200), SUBSTRING(@keys,
               CONVERT(int, SUBSTRING(@places, 5 * (x.i + y.i) + 1, 4)) + 1,
               CONVERT(int, SUBSTRING(@places, 5 * (x.i + y.i) + 5, 1)))) AS dedup_key
    FROM ` + numbers + `
    WHERE x.i + y.i < DATALENGTH(@places) / 5
) AS a
`
)

// findText seeks PK for each id and UX for each key, and names a row once that
// has both. READCOMMITTEDLOCK: a row whose insert or delete is under way is
// waited for, also where the database would show its former version: this is
// asked to learn the outcome of an insert. S locks end with each read.
const findText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT q.id, q.dedup_key, q.fence,
       CASE WHEN q.leased_by IS NOT NULL AND q.visible_at > @now THEN 1 ELSE 0 END AS leased
` + fromIDs + `INNER JOIN {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id
UNION
SELECT q.id, q.dedup_key, q.fence,
       CASE WHEN q.leased_by IS NOT NULL AND q.visible_at > @now THEN 1 ELSE 0 END AS leased
` + fromKeys + `INNER JOIN {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({key}), FORCESEEK) ON q.dedup_key = a.dedup_key AND q.dedup_key IS NOT NULL
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

func (q *sqlServerQueue) Find(ids [][16]byte, keys []string) Statement {
	places, all := packKeys(keys)
	return call(q.find, "@ids varbinary(8000), @places varbinary(8000), @keys varbinary(max)",
		sql.Named("ids", packIDs(ids)), sql.Named("places", places), sql.Named("keys", all))
}

// versionText seeks the key of the table of queues. A missing table is error
// 208, class NoSchema.
const versionText = session + `SELECT version, CONVERT(int, paused) AS paused
FROM {queues}
WHERE name = {name};
`

func (q *sqlServerQueue) Version() Statement { return call(q.version, "") }

// statsText counts over IX and over the keys of the other two tables, each count
// behind a TOP so that a backlog of millions costs no more than @limit entries.
// Scheduled and leased messages are both due in the future; telling them apart
// looks up each row until the limit is met.
//
// READPAST with READCOMMITTEDLOCK, as in nextDueText: it never waits, and rows
// of claims and settles under way are not counted.
const statsText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) q.id
            FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({ready}), FORCESEEK)
            WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at <= @now) AS r) AS ready,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) q.id
            FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({ready}), FORCESEEK)
            WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at > @now AND q.leased_by IS NULL) AS s) AS scheduled,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) q.id
            FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({ready}), FORCESEEK)
            WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at > @now AND q.leased_by IS NOT NULL) AS l) AS leased,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM {dead} AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ({dead ended}))) AS d) AS dead,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM {done} AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ({done id}))) AS d) AS done,
       (SELECT DATEDIFF_BIG(millisecond, MIN(f.visible_at), @now)
        FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
        CROSS APPLY (
            SELECT TOP (1) q.visible_at
            FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({ready}), FORCESEEK)
            WHERE q.priority = p.priority AND q.visible_at <= @now
            ORDER BY q.visible_at, q.id
        ) AS f) AS oldest_ms,
       (SELECT COUNT(*) FROM {queues} AS s WITH (READPAST, READCOMMITTEDLOCK)
        WHERE s.name = {name} AND s.paused = 1) AS paused
OPTION (KEEPFIXED PLAN);
`

func (q *sqlServerQueue) Stats(limit int) Statement {
	return call(q.stats, "@limit bigint", sql.Named("limit", int64(limit)))
}

// Peeks take up to @n of each lane by IX and then the first @n of those, so that
// no backlog is sorted. Hints are those of statsText.
const (
	peekColumns = `q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', q.visible_at) AS due_at,
       q.leased_by, q.dedup_key, q.last_error, q.headers, q.body
`
	peekLanes = `FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
    SELECT TOP (@n) l.id, l.priority, l.fence, l.attempts, l.enqueued_at, l.visible_at,
           l.leased_by, l.dedup_key, l.last_error, l.headers, l.body
    FROM {live} AS l WITH (READPAST, READCOMMITTEDLOCK, INDEX ({ready}), FORCESEEK)
`
	peekOrder = `    ORDER BY l.visible_at, l.id
) AS q
ORDER BY q.priority DESC, q.visible_at, q.id;
`
	peekEndedColumns = `q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', q.ended_at) AS due_at,
       CONVERT(nvarchar(200), NULL) AS leased_by, q.dedup_key, q.last_error, q.headers, q.body
`
)

var peekTexts = map[State]string{
	Ready: session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT TOP (@n) 'ready' AS state, ` + peekColumns + peekLanes + `    WHERE l.priority = p.priority AND l.visible_at <= @now
` + peekOrder,
	Scheduled: session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT TOP (@n) 'scheduled' AS state, ` + peekColumns + peekLanes + `    WHERE l.priority = p.priority AND l.visible_at > @now AND l.leased_by IS NULL
` + peekOrder,
	Leased: session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT TOP (@n) 'leased' AS state, ` + peekColumns + peekLanes + `    WHERE l.priority = p.priority AND l.visible_at > @now AND l.leased_by IS NOT NULL
` + peekOrder,
	Dead: session + `SELECT TOP (@n) 'dead' AS state, ` + peekEndedColumns + `FROM {dead} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({dead ended}))
ORDER BY q.ended_at DESC, q.id DESC;
`,
	Done: session + `SELECT TOP (@n) 'done' AS state, ` + peekEndedColumns + `FROM {done} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({done pk}))
ORDER BY q.ended_at DESC, q.id DESC;
`,
}

func (q *sqlServerQueue) Peek(s State, n int) Statement {
	return call(q.peek[s], "@n bigint", sql.Named("n", int64(n)))
}

// getText seeks PK, the key of the dead table and the index of done ids, in that
// order, as a message moves; of several copies in the done table it takes the
// last. It waits for a row that is being changed, save where
// READ_COMMITTED_SNAPSHOT shows its committed version; S locks end with each
// read.
const getText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT CASE WHEN q.visible_at <= @now THEN 'ready' WHEN q.leased_by IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
       ` + peekColumns + `FROM {live} AS q WITH (INDEX ({pk}), FORCESEEK)
WHERE q.id = @id
UNION ALL
SELECT 'dead' AS state, ` + peekEndedColumns + `FROM {dead} AS q WITH (INDEX ({dead pk}), FORCESEEK)
WHERE q.id = @id
UNION ALL
SELECT d.state, d.id, d.priority, d.fence, d.attempts, d.enqueued_at, d.due_at, d.leased_by, d.dedup_key, d.last_error, d.headers, d.body FROM (
    SELECT TOP (1) 'done' AS state, ` + peekEndedColumns + `FROM {done} AS q WITH (INDEX ({done id}), FORCESEEK)
    WHERE q.id = @id
    ORDER BY q.ended_at DESC
) AS d;
`

func (q *sqlServerQueue) Get(id [16]byte) Statement {
	return call(q.get, "@id binary(16)", sql.Named("id", id[:]))
}
