package sqlserver

import (
	"database/sql"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

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

// findText seeks PK for each id and UX for each key. READCOMMITTEDLOCK: it waits for a row whose insert or delete is in
// progress, even if the database would show its former version: the statement finds the outcome of an insert. S locks are
// released after each read.
//
// The columns that it reads for a key are in UX, so the row is not looked up: that would take the locks of entry and row in
// the opposite order to an ack's.
const findText = session + `SELECT q.id, q.dedup_key, q.fence
` + fromIDs + `INNER JOIN {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id
UNION ALL
SELECT q.id, q.dedup_key, CONVERT(bigint, 0) AS fence
` + fromKeys + `INNER JOIN {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({key}), FORCESEEK) ON q.dedup_key = a.dedup_key AND q.dedup_key IS NOT NULL
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

func (q *queue) Find(ids [][16]byte, keys []string) sqlbatch.Statement {
	places, all := packKeys(keys)
	return call(q.find, "@ids varbinary(8000), @places varbinary(8000), @keys varbinary(max)",
		sql.Named("ids", packIDs(ids)), sql.Named("places", places), sql.Named("keys", all))
}

// lookText seeks PK for each id, and fails with 1222 at the first that is locked. READCOMMITTEDLOCK, because a row version
// would not show that another transaction is changing the row. LOCK_TIMEOUT 0, because the callers must not wait.
const lookText = session + `SET LOCK_TIMEOUT 0;
SELECT q.id, q.fence
` + fromIDs + `INNER JOIN {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

func (q *queue) Look(ids [][16]byte) sqlbatch.Statement {
	return call(q.look, "@ids varbinary(8000)", sql.Named("ids", packIDs(ids)))
}

// versionText seeks the key of the table of queues. A missing table is error
// 208, class NoSchema. In a transaction of the caller it keeps no lock (READCOMMITTEDLOCK),
// whatever the isolation level.
const versionText = session + `SELECT version, min_version, features, CONVERT(int, paused) AS paused, kind, slots, {policy read}, shard, shards, shard_set,
       DATEDIFF_BIG(millisecond, '19700101', paused_at) AS paused_at, paused_by, pause_reason,
       DB_NAME() + N'/' + CONVERT(nvarchar(20), DATEDIFF_BIG(millisecond, '19700101', created_at)) AS [identity]
FROM {queues} WITH (READCOMMITTEDLOCK)
WHERE name = {name};
`

func (q *queue) Version() sqlbatch.Statement { return call(q.version, "") }

// problemsText reads only the catalog, which every login may do for the tables that it may read and for the current database.
// Tables from before the first release lack a column.
const problemsText = session + `SELECT 'sets' AS problem, N'the driver returns only the first result set of a batch, and hides errors that follow: its rows must have the methods of database/sql/driver.RowsNextResultSet' AS found;
SELECT 'sets' AS problem, N'' AS found
UNION ALL
SELECT 'form' AS problem, {'live'} + N' has no column ' + c.name AS found
FROM (VALUES (N'lapses'), (N'type')) AS c (name)
WHERE COL_LENGTH({'live'}, N'fence') IS NOT NULL AND COL_LENGTH({'live'}, c.name) IS NULL
UNION ALL
SELECT 'durability' AS problem, N'DELAYED_DURABILITY = FORCED' AS found
FROM sys.databases AS d
WHERE d.database_id = DB_ID() AND d.delayed_durability = 2
UNION ALL
SELECT 'table' AS problem, t.name + N' is not a table' AS found
FROM (VALUES ({'live'}), ({'dead'}), ({'done'}), ({'queues'})) AS t (name)
WHERE OBJECT_ID(t.name, N'U') IS NULL AND (OBJECT_ID(t.name, N'V') IS NOT NULL OR OBJECT_ID(t.name, N'SN') IS NOT NULL);
`

func (q *queue) Problems() sqlbatch.Statement { return call(q.problems, "") }

// missingText reads only the catalog, which shows a login the tables on which it has any permission. One that may create
// tables in the schema sees all that exist.
func missingText(ordered bool) string {
	own := "({'live'}, {'due'})"
	if ordered {
		own += ", ({'live'}, {'by seq'}), ({'dead'}, {'dead line'}), ({'slots'}, N'')"
	}
	return session + `SELECT COUNT(*) AS missing
FROM (VALUES ` + own + `, ({'live'}, {'key'}), ({'dead'}, {'dead ended'}), ({'dead'}, {'dead cause'}), ({'dead'}, {'dead key'}), ({'dead'}, {'dead new'}), ({'done'}, {'done id'}),
  ({'consumers'}, N''), ({'samples'}, N''), ({'log'}, N'')) AS i (of_table, name)
WHERE CASE WHEN i.name = N'' THEN OBJECT_ID(i.of_table, N'U') ELSE INDEXPROPERTY(OBJECT_ID(i.of_table, N'U'), i.name, 'IndexID') END IS NULL
  AND (OBJECT_ID(i.of_table, N'U') IS NOT NULL OR HAS_PERMS_BY_NAME({'[schema]'}, 'SCHEMA', 'ALTER') = 1);
`
}

func (q *queue) Missing() sqlbatch.Statement { return call(q.missing, "") }

// clockText rounds as the columns do, so that later writes are not earlier.
const clockText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT DATEDIFF_BIG(millisecond, '19700101', @now) AS now;
`

func (q *queue) Clock() sqlbatch.Statement { return call(q.clock, "") }

// statsText reads at most @limit entries of IX for scheduled messages. Of the due entries of each priority it reads twice as
// many, with their rows, for ready and leased ones, and as many keys of the other two tables. A backlog of millions costs no
// more.
//
// READPAST with READCOMMITTEDLOCK, as in nextDueText: it never waits, and rows of claims and settles in progress are not
// counted.
const statsText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT CASE WHEN f.ready < @limit THEN f.ready ELSE @limit END AS ready,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) q.id
            FROM ` + looked + `
            WHERE q.priority IN (2, 1, 0, -1) AND q.due_at > @now) AS s) AS scheduled,
       CASE WHEN f.leased < @limit THEN f.leased ELSE @limit END AS leased,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM {dead} AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ({dead ended}))) AS d) AS dead,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM {done} AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ({done id}))) AS d) AS done,
       DATEDIFF_BIG(millisecond, f.oldest, @now) AS oldest_ms,
       CASE WHEN EXISTS (` + pausedRow + `) THEN 1 ELSE 0 END AS paused
FROM (
    SELECT COUNT_BIG(CASE WHEN e.lease_until <= @now THEN 1 END) AS ready,
           COUNT_BIG(CASE WHEN e.lease_until > @now THEN 1 END) AS leased,
           MIN(CASE WHEN e.lease_until <= @now THEN e.due_at END) AS oldest
    FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS APPLY (
        SELECT TOP (2 * @limit) q.due_at, q.lease_until
        FROM ` + looked + `
        WHERE q.priority = p.priority AND q.due_at <= @now
        ORDER BY q.due_at, q.id) AS e
) AS f
OPTION (KEEPFIXED PLAN);
`

func (q *queue) Stats(limit int) sqlbatch.Statement {
	return call(q.stats, "@limit bigint", sql.Named("limit", int64(limit)))
}

// emptyText reads PK from its end, where the newest messages are: behind them are the ghosts of older ones. It looks twice.
//
// READUNCOMMITTED: the first look takes no lock and needs none, since it can only prove that there is a message. A row that
// it finds might not be committed yet. It cannot prove that there is none: it does not show a row whose delete is not
// committed and might be rolled back (an AckTx, or a move to the dead-letter table), and it might miss rows while a page is
// split.
//
// TABLOCK: the second look, which has an S lock on the table, runs while no transaction that has written to the table is
// open, because a writer keeps its IX lock until it ends. Rows that it finds are committed, rows that it does not find are
// gone, and nothing is stored while it reads. Row locks instead would miss a message that is stored behind the scan, before
// the last one ahead of it ends. Senders and consumers wait while it reads the ghosts, so it runs only if the first look
// finds nothing. HOLDLOCK: the same with READ_COMMITTED_SNAPSHOT, and to the end of the statement. READCOMMITTEDLOCK
// conflicts with TABLOCK.
//
// LOCK_TIMEOUT 0: if the table's lock is not free, the result is error 1222, and no writer queues behind the request. 601
// comes from the first look, when a row moves during it. XACT_ABORT is off for TRY: it would make 1222 an error that ends the
// batch.
const emptyText = session + `~SET XACT_ABORT OFF;
SET LOCK_TIMEOUT 0;
DECLARE @empty int = 0;
DECLARE @last binary(16);
BEGIN TRY
    SET @last = (SELECT TOP (1) q.id FROM {live} AS q WITH (READUNCOMMITTED, INDEX ({pk})) ORDER BY q.id DESC);
    IF @last IS NULL
    BEGIN
        SET @last = (SELECT TOP (1) q.id FROM {live} AS q WITH (HOLDLOCK, TABLOCK, INDEX ({pk})) ORDER BY q.id DESC);
        IF @last IS NULL
            SET @empty = 1;
    END;
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() <> 601 AND ERROR_NUMBER() <> 1222
        THROW;
END CATCH;
SELECT @empty AS empty;
`

func (q *queue) Empty() sqlbatch.Statement { return call(q.empty, "") }

// Browses take up to @n of each lane by IX and then the first @n of those, so that no backlog is sorted. Behind a place
// (@lane, @after, @id) that is two seeks per lane, since T-SQL has no comparison of rows: the remaining messages with the
// same time, which can be many, and later messages; nothing of the lanes before its own. Hints are those of statsText. The
// holder's name is left out while its row is being written.
const (
	noCause     = `CONVERT(smallint, NULL) AS cause, CONVERT(bigint, NULL) AS fingerprint`
	peekColumns = `q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', q.due_at) AS due_at,
       CASE WHEN q.leased_by IS NOT NULL THEN DATEDIFF_BIG(millisecond, '19700101', q.lease_until) END AS lease_until,
       CONVERT(bigint, NULL) AS ended_at,
       DATEDIFF_BIG(millisecond, '19700101', q.expires_at) AS expires_at,
       q.leased_by,
       (SELECT m.name FROM {consumers} AS m WITH (READPAST, READCOMMITTEDLOCK) WHERE m.id = q.leased_by) AS holder,
       q.dedup_key, q.type, q.last_error, q.history, ` + noCause + `, q.headers, q.body{q order}
`
	peekLanes = `FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
`
	peekRow = `    SELECT TOP (@n) l.id, l.priority, l.fence, l.attempts, l.enqueued_at, l.due_at, l.lease_until, l.expires_at,
           l.leased_by, l.dedup_key, l.type, l.last_error, l.history, l.headers, l.body
    FROM {live} AS l WITH (READPAST, READCOMMITTEDLOCK, INDEX ({due}), FORCESEEK)
    WHERE l.priority = p.priority AND l.lease_until IS NOT NULL`
	peekInOrder = `
    ORDER BY l.due_at, l.id
`
	peekColumnsOf = `u.id, u.priority, u.fence, u.attempts, u.enqueued_at, u.due_at, u.lease_until, u.expires_at,
           u.leased_by, u.dedup_key, u.type, u.last_error, u.history, u.headers, u.body`
	peekPlace = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @first datetime2(3) = '00010101';
DECLARE @last datetime2(3) = '99991231 23:59:59.999';
` + peekAfter
	peekAfter = `DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
`
	peekOrder = `) AS q
ORDER BY q.priority DESC, q.due_at, q.id;
`
	peekEndedColumns = `q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       CONVERT(bigint, NULL) AS due_at,
       CONVERT(bigint, NULL) AS lease_until,
       DATEDIFF_BIG(millisecond, '19700101', q.ended_at) AS ended_at,
       CONVERT(bigint, NULL) AS expires_at,
       CONVERT(binary(16), NULL) AS leased_by,
       CONVERT(nvarchar(200), NULL) AS holder,
       q.dedup_key, q.type, q.last_error, q.history, {cause}, q.headers, q.body{q order}
`
)

// browseBound bounds the times of a state: the least time in a lane behind that of the place, the least time in its own lane,
// and the other conditions on the time of the place, and on later times.
type browseBound struct{ open, from, tie, later string }

// peekLane selects the messages of a state behind the place in each lane. The numbers of lanes are build.Lane's.
func peekLane(b browseBound) string {
	const part = "    SELECT " + peekColumnsOf + " FROM (\n"
	rows := part + peekRow
	begin := `CASE WHEN 2 - p.priority = @lane THEN ` + b.from + ` WHEN 2 - p.priority > @lane THEN ` + b.open + ` ELSE @last END`
	return peekLanes + rows + ` AND 2 - p.priority = @lane` + b.tie + ` AND l.due_at = @after AND l.id > @id` + peekInOrder + `    ) AS u
    UNION ALL
` + rows + ` AND l.due_at > ` + begin + b.later + peekInOrder + `    ) AS u
`
}

// peekEnded selects the messages that ended before the place.
func peekEnded(state, table, index string) string {
	part := `    SELECT TOP (@n) e.id, e.priority, e.fence, e.attempts, e.enqueued_at, e.ended_at, e.dedup_key, e.type, e.last_error, e.history, {e cause}e.headers, e.body{e order}
    FROM ` + table + ` AS e WITH (READPAST, READCOMMITTEDLOCK, INDEX (` + index + `), FORCESEEK)
    WHERE e.ended_at `
	const order = `
    ORDER BY e.ended_at DESC, e.id DESC
`
	const row = `    SELECT u.id, u.priority, u.fence, u.attempts, u.enqueued_at, u.ended_at, u.dedup_key, u.type, u.last_error, u.history, {u cause}u.headers, u.body{u order} FROM (
`
	return ofCause(state, session+peekAfter+`SELECT TOP (@n) '`+state+`' AS state, `+peekEndedColumns+`FROM (
`+row+part+`= @after AND e.id < @id`+order+`    ) AS u
    UNION ALL
`+row+part+`< @after`+order+`    ) AS u
) AS q
ORDER BY q.ended_at DESC, q.id DESC;
`)
}

// ofCause adds the cause and the fingerprint, which only dead messages have.
func ofCause(state, text string) string {
	if state != "dead" {
		return strings.NewReplacer("{cause}", noCause, "{e cause}", "", "{u cause}", "").Replace(text)
	}
	return strings.NewReplacer("{cause}", "q.cause, q.fingerprint", "{e cause}", "e.cause, e.fingerprint, ", "{u cause}", "u.cause, u.fingerprint, ").Replace(text)
}

var peekTexts = map[sqlbatch.State]string{
	sqlbatch.Dead: peekEnded("dead", "{dead}", "{dead ended}"),
	sqlbatch.Done: peekEnded("done", "{done}", "{done pk}"),
}

func (q *queue) Peek(s sqlbatch.State, n int, after *sqlbatch.Place) sqlbatch.Statement {
	return q.page(q.peek[s], s, n, after)
}

// getText seeks PK, the key of the dead-letter table and the index of done ids, in that order, as a message moves; of several
// copies in the done table it takes the last. It waits for a row that is being changed, unless READ_COMMITTED_SNAPSHOT shows
// its committed version. S locks are released after each read.
var getText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT CASE WHEN q.lease_until > @now THEN 'leased' WHEN q.due_at <= @now THEN 'ready' ELSE 'scheduled' END AS state,
       ` + peekColumns + `FROM {live} AS q WITH (INDEX ({pk}), FORCESEEK)
WHERE q.id = @id
UNION ALL
SELECT 'dead' AS state, ` + ofCause("dead", peekEndedColumns) + `FROM {dead} AS q WITH (INDEX ({dead pk}), FORCESEEK)
WHERE q.id = @id
UNION ALL
SELECT d.state, d.id, d.priority, d.fence, d.attempts, d.enqueued_at, d.due_at, d.lease_until, d.ended_at, d.expires_at,
       d.leased_by, d.holder, d.dedup_key, d.type, d.last_error, d.history, d.cause, d.fingerprint, d.headers, d.body{d order} FROM (
    SELECT TOP (1) 'done' AS state, ` + ofCause("done", peekEndedColumns) + `FROM {done} AS q WITH (INDEX ({done id}), FORCESEEK)
    WHERE q.id = @id
    ORDER BY q.ended_at DESC
) AS d;
`

// partText reads no body for @bytes = 0.
var partText = strings.NewReplacer(
	`q.headers, q.body{q order}`, `q.headers, CASE WHEN @bytes > 0 THEN SUBSTRING(q.body, @from, @bytes) END AS body, CONVERT(bigint, DATALENGTH(q.body)) AS size{q order}`,
	`d.body{d order}`, `d.body, d.size{d order}`,
).Replace(getText)

// bodiesText seeks the key of a table. Hints are those of statsText.
func bodiesText(table, key string) string {
	return session + `SELECT q.id, q.headers, q.body
` + fromIDs + `INNER JOIN ` + table + ` AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX (` + key + `), FORCESEEK) ON q.id = a.id
` + fromListOptions + `;
`
}

func (q *queue) Bodies(s sqlbatch.State, ids [][16]byte) sqlbatch.Statement {
	return call(q.bodies[s == sqlbatch.Dead], "@ids varbinary(8000)", sql.Named("ids", packIDs(ids)))
}

func (q *queue) Get(id [16]byte) sqlbatch.Statement {
	return call(q.get, "@id binary(16)", sql.Named("id", id[:]))
}

func (q *queue) Part(id [16]byte, from, n int) sqlbatch.Statement {
	return call(q.part, "@id binary(16), @from int, @bytes int", sql.Named("id", id[:]), sql.Named("from", int64(from)+1), sql.Named("bytes", int64(n)))
}
