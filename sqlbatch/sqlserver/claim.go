package sqlserver

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// A claim is one request that takes the lanes from the highest priority down, each with the rest of the count, in one transaction: a
// failure in the third lane leaves nothing leased in the first. Each part of a lane is a result set; a lane with nothing left to take is
// skipped, and a paused queue has no result set at all.
//
// A head with an ID has two parts, since T-SQL has no comparison of rows: the messages that are due at the same time, which can be many,
// from that ID on, and those that are due later. A head that is less than a HeadMargin ago has no ID.
//
// DEADLOCK_PRIORITY LOW: in an unforeseen deadlock the claim is the victim; it is the safest statement to repeat.
//
// @mark is where fences of this millisecond begin: see FenceBits.
//
// The commit does not use delayed durability. A claim that a crash of the server undid is repeated with another fence. Until then two
// consumers would process the message.
const (
	claimOpen = settling + `~SET DEADLOCK_PRIORITY LOW;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @late datetime2(3) = DATEADD(millisecond, -{margin}, @now);
DECLARE @p smallint = 2;
DECLARE @head datetime2(3);
DECLARE @id binary(16);
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, @now));
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @left int = @n;
IF EXISTS (` + pausedRow + `)
    SET @left = 0;
~BEGIN TRANSACTION;
WHILE @p >= -1 AND @left > 0
BEGIN
    SET @head = DATEADD(millisecond, CONVERT(int, SUBSTRING(@heads, 24 * @p + 29, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@heads, 24 * @p + 25, 4)), @epoch));
    SET @id = CONVERT(binary(16), SUBSTRING(@heads, 24 * @p + 33, 16));
    IF @head > @late
    BEGIN
        SET @head = @late;
        SET @id = 0x00;
    END;
    IF @id > 0x00
    BEGIN
`
	claimRest = `        SET @head = DATEADD(millisecond, 1, @head);
    END;
    IF @left > 0
    BEGIN
`
	claimClose = `    END;
    SET @p = @p - 1;
END;
~COMMIT TRANSACTION;
`
)

// headBytes is the length of a head in a list: a span and an ID.
const headBytes = 8 + 16

// headsText makes a time and an ID from each of the Heads, at least a HeadMargin ago: @head0 and @id0 are those of the lowest priority.
func headsText() string {
	var b strings.Builder
	b.WriteString(`DECLARE @epoch datetime2(3) = '19700101';
DECLARE @late datetime2(3) = DATEADD(millisecond, -{margin}, @now);
`)
	for i := range sqlbatch.Priorities {
		b.WriteString(headText("@head"+strconv.Itoa(i), "@heads", headBytes*i))
		fmt.Fprintf(&b, "DECLARE @id%[1]d binary(16) = CONVERT(binary(16), SUBSTRING(@heads, %[2]d, 16));\nIF @head%[1]d >= @late\n    SET @id%[1]d = 0x00;\n", i, headBytes*i+9)
	}
	return b.String()
}

// headText makes a time from the value that packHeads wrote at that place of a list.
func headText(name, list string, at int) string {
	return fmt.Sprintf(`DECLARE %[1]s datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(%[2]s, %[4]d, 4)), DATEADD(day, CONVERT(int, SUBSTRING(%[2]s, %[3]d, 4)), @epoch));
IF %[1]s > @late
    SET %[1]s = @late;
`, name, list, at+1, at+5)
}

// pausedRow is the queue's row if the queue is paused. With READUNCOMMITTED, the read does not wait for a transaction that has locked
// the row. If that transaction has changed other columns, the queue still counts as paused, which READPAST would not achieve. A Pause
// and a Resume take effect before their commits.
const (
	pausedRow = `SELECT 1 FROM {queues} AS s WITH (READUNCOMMITTED) WHERE s.name = {name} AND s.paused = 1`
	notPaused = `NOT EXISTS (` + pausedRow + `)`
)

// claimLane walks IX (priority, due_at, id) from the head to @now, with the row of each entry, until it has found enough that no
// consumer leases (i), and locks and changes those (u). The requested order is the order of the index, so nothing is sorted, and
// TOP with ORDER BY is the only documented way to define which rows are taken. All columns of the expression are of one table, so it can be
// updated although it is a join. Before the head are the ghosts of settled messages, and leased messages. Behind it are usually the messages
// that were claimed in the last moments, and then free ones.
//
// The walk takes S locks, each only while it reads the entry or row. The rows that it skips are leased. A U lock there, which can last
// as long as the transaction, would make READPAST skip the row in a concurrent settle or extension. An S lock only makes these wait
// for a moment. If the server's look-up prefetches, it keeps S locks on entries until the lane's statement ends, and acks and nacks
// wait for that; OPTIMIZE FOR one row is a reason not to prefetch. READCOMMITTEDLOCK: the walk sees the current rows, not earlier versions,
// and READPAST has no effect without it if READ_COMMITTED_SNAPSHOT is on.
//
// UPDLOCK on the found rows: a U lock kept to the end, so no two claimers take one row. The second claimer skips it and continues, as
// TOP counts above the lock. Under the lock the row is checked again. READPAST: rows that other claimers, settles or uncommitted
// producers hold are skipped, in the index and in the row. ROWLOCK: READPAST cannot skip page locks. INDEX with FORCESEEK, FORCE ORDER
// and LOOP JOIN: every claimer uses the same path, and a missing index is error 8622, not a scan. KEEPFIXED PLAN: the table alternates
// between empty and full, and recompiling for that finds the same plan.
//
// So a message costs four locks: S on its entry, and S, U and X on its row.
//
// A claim waits only for S locks on rows that it has U locks on, up to LockWait, and the holders of these wait for none of its locks.
// The claim after one that failed locks the rows with XLOCK, which also skips rows that readers have locked (claimPast). XLOCK is not
// the rule, because a claim would skip rows that another one reads at that moment. It writes rows and no index entry, so it leaves no
// ghost. As no column changes its width, it never splits a page.
//
// @now and the heads have the column's type, so the comparisons are a plain range of the index. OUTPUT guarantees no order, and its rows
// might precede an error: the claim counts only after all of them have been read.
const claimLane = `    WITH a AS (
        SELECT TOP (@left) u.id, u.priority, u.due_at, u.lease_until, u.enqueued_at, u.expires_at, u.fence, u.attempts, u.lapses, u.leased_by,
            u.dedup_key, u.type, u.headers, u.body
        FROM ` + claimFree + `
        INNER JOIN {live} AS u WITH ({lock}, READPAST, ROWLOCK, INDEX ({pk}), FORCESEEK) ON u.id = i.id
        WHERE ` + claimable + ` AND u.due_at <= @now AND u.leased_by IS NULL
        ORDER BY i.due_at, i.id
    )
    UPDATE a
    {set}
    {output}
    OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN, OPTIMIZE FOR (@left = 1));
    SET @left = @left - @@ROWCOUNT;
`

const (
	claimFree = `{live} AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ({due}), FORCESEEK)`
	claimable = `i.priority = @p AND {from} AND i.due_at <= @now AND i.leased_by IS NULL`
)

// A fence grows from the beginning of the millisecond, or from its current value if that is greater, but see HighFence. A count at its
// limit stays.
const (
	claimSet = `SET lease_until = @until,
        fence = CASE WHEN fence > @mark AND fence <= CONVERT(bigint, {high fence}) THEN fence ELSE @mark END + @salt,
        attempts = CASE WHEN attempts < {last attempt} THEN attempts + 1 ELSE attempts END,
        leased_by = @by`

	claimOutput = `OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.due_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           `

	// inlined has the columns that a claim of a plain queue returns only for messages up to the size limit.
	inlined = `CASE WHEN @inline >= 0 THEN inserted.dedup_key END AS dedup_key,
           CASE WHEN @inline >= 0 THEN inserted.type END AS type,
           CASE WHEN @inline >= 0 THEN inserted.headers END AS headers,
           CASE WHEN DATALENGTH(inserted.body) <= @inline THEN inserted.body END AS body,
           DATALENGTH(inserted.body) AS size`

	claimNoContents = `CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(100), NULL) AS type, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body`
)

const (
	headsDeclaration = "@heads binary(96)"
	claimDeclaration = "@n int, @lease_days int, @lease_ms int, @by binary(16), @salt bigint, @inline int, " + headsDeclaration
)

// claimText is the whole claim.
func claimText() string {
	lane := strings.NewReplacer("{set}", claimSet, "{output}", claimOutput+inlined).Replace(claimLane)
	part := func(from string) string { return indent("    ", strings.Replace(lane, "{from}", from, 1)) }
	return claimOpen + part("i.due_at = @head AND i.id >= @id") + claimRest + part("i.due_at >= @head") + claimClose
}

func (q *queue) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	days, ms := span(build.Milliseconds(p.Lease))
	rows := min(p.Rows, Dialect.Traits().ClaimRows)
	text := q.claim
	if p.PastReaders {
		text = q.claimPast
	}
	return call(text, claimDeclaration,
		sql.Named("n", int32(rows)),
		sql.Named("lease_days", days),
		sql.Named("lease_ms", ms),
		sql.Named("by", p.Consumer[:]),
		sql.Named("salt", p.Salt),
		sql.Named("inline", int32(p.Inline)),
		sql.Named("heads", packHeads(p.Heads)))
}

// contentsText reads the row of a lease. With READCOMMITTEDLOCK it waits up to LockWait for a row that is being deleted, and does not
// take it for deleted.
const contentsText = session + `~SET LOCK_TIMEOUT {wait};
SELECT q.dedup_key, q.type, q.headers, q.body
FROM {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK)
WHERE q.id = @id AND q.fence = @fence
OPTION (KEEPFIXED PLAN);
`

func (q *queue) Contents(item sqlbatch.Item) sqlbatch.Statement {
	return call(q.contents, "@id binary(16), @fence bigint", sql.Named("id", item.ID[:]), sql.Named("fence", item.Fence))
}

// nextDueText walks each lane from its head to its first message that no consumer leases, by IX and the rows.
//
// READPAST never waits: it skips the rows of a claim or an uncommitted producer, as a claim would. It needs READCOMMITTEDLOCK, without
// which it has no effect if READ_COMMITTED_SNAPSHOT is on. The S lock on each entry and row is released after it is read. A dirty read
// instead would count rows of open transactions as due, and the claim of the caller would find nothing.
var nextDueText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
` + headsText() + `SELECT DATEDIFF_BIG(millisecond, @now, MIN(f.due_at)) AS due_in_ms
FROM ` + headList + `
CROSS APPLY (
    SELECT TOP (1) q.due_at
    FROM ` + looked + `
    WHERE q.priority = p.priority AND q.due_at >= p.head AND (q.due_at > p.head OR q.id >= p.id) AND q.leased_by IS NULL
    ORDER BY q.due_at, q.id) AS f
` + unlessPaused

const (
	headList = `(VALUES (2, @head3, @id3), (1, @head2, @id2), (0, @head1, @id1), (-1, @head0, @id0)) AS p (priority, head, id)`

	looked = `{live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({due}), FORCESEEK)`

	unlessPaused = `WHERE ` + notPaused + `
OPTION (KEEPFIXED PLAN);
`
)

func (q *queue) NextDue(f sqlbatch.Heads) sqlbatch.Statement {
	return call(q.nextDue, headsDeclaration, sql.Named("heads", packHeads(f)))
}

// dueOrLockedText is nextDueText from the beginning, without READPAST. LOCK_TIMEOUT 0: if a row on the walked lane is locked, the
// result is error 1222, and no writer queues behind the request. XACT_ABORT is off for TRY: it would make 1222 an error that ends the
// batch.
var dueOrLockedText = session + `~SET XACT_ABORT OFF;
SET LOCK_TIMEOUT 0;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @due bigint;
BEGIN TRY
    SET @due = (SELECT DATEDIFF_BIG(millisecond, @now, MIN(f.due_at))
    FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS APPLY (
        SELECT TOP (1) q.due_at
        FROM {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({due}), FORCESEEK)
        WHERE q.priority = p.priority AND q.lease_until <= @now
        ORDER BY q.due_at, q.id) AS f
    WHERE ` + notPaused + `);
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() <> 1222
        THROW;
    SET @due = 0;
END CATCH;
SELECT @due AS due_in_ms;
`

func (q *queue) DueOrLocked() sqlbatch.Statement { return call(q.dueOrLocked, "") }

// rescanText walks each lane from its beginning, over ghosts and leased messages, to its first message that no consumer leases. If there is
// none, all due messages are leased, and it walks the lane again, up to a hundred thousand messages, for the earliest end of a lease. A third
// walk ends at the first expired lease, and passes up to {passed} free messages before it, which might be locked. Each MIN is over one row or
// these messages, and returns one row even if there is none. Hints and locks are those of nextDueText.
var rescanText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT p.priority,
       DATEDIFF_BIG(millisecond, '19700101', CASE WHEN r.due_at IS NULL THEN @now ELSE r.due_at END) AS head,
       DATEDIFF_BIG(millisecond, @now, CASE WHEN r.due_at IS NOT NULL THEN r.due_at
           WHEN s.due_at IS NULL OR l.lease_until < s.due_at THEN l.lease_until ELSE s.due_at END) AS due_in,
       (SELECT COUNT_BIG(*) FROM {consumers} AS m WITH (READPAST, READCOMMITTEDLOCK) WHERE m.queue = {name} AND m.until > @now) AS consumers,
       r.id AS head_id, r.lapses, DATEDIFF_BIG(millisecond, '19700101', x.due_at) AS lost_at, x.id AS lost_id
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at, MIN(e.id) AS id, MIN(e.lapses) AS lapses FROM (
        SELECT TOP (1) q.due_at, q.id, q.lapses
        FROM ` + looked + `
        WHERE q.priority = p.priority AND q.due_at <= @now AND q.leased_by IS NULL
        ORDER BY q.due_at, q.id) AS e) AS r
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at, MIN(e.id) AS id FROM (
        SELECT TOP (1) f.due_at, f.id FROM (
            SELECT TOP ({passed} + 1) q.due_at, q.id, q.leased_by
            FROM ` + looked + `
            WHERE q.priority = p.priority AND q.due_at <= @now AND q.lease_until <= @now
            ORDER BY q.due_at, q.id) AS f
        WHERE f.leased_by IS NOT NULL
        ORDER BY f.due_at, f.id) AS e) AS x
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at FROM (
        SELECT TOP (1) q.due_at
        FROM ` + looked + `
        WHERE q.priority = p.priority AND q.due_at > @now
        ORDER BY q.due_at, q.id) AS e) AS s
CROSS APPLY (
    SELECT MIN(e.lease_until) AS lease_until FROM (
        SELECT TOP (100000) q.lease_until
        FROM ` + looked + `
        WHERE r.due_at IS NULL AND q.priority = p.priority AND q.due_at <= @now AND q.lease_until > @now
        ORDER BY q.due_at, q.id) AS e) AS l
` + unlessPaused

func (q *queue) Rescan() sqlbatch.Statement { return call(q.rescan, "") }

// rescueText walks a lane from a place on, with the locks of nextDueText, and then locks the rows whose leases had ended. A lease might have
// been extended, or another consumer might have the message by now, so the end is checked again under the lock. Rows and entries that others
// have locked are skipped. The fence has the time of the claim. Six of the bytes of NEWID are random.
var rescueText = settling + `~SET DEADLOCK_PRIORITY LOW;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @at datetime2(3) = DATEADD(millisecond, @at_ms, DATEADD(day, @at_days, @epoch));
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @lost TABLE (id binary(16) NOT NULL, lost int NOT NULL, PRIMARY KEY CLUSTERED (id));
INSERT INTO @lost (id, lost)
SELECT TOP ({rescued}) q.id, CASE WHEN q.leased_by IS NOT NULL AND q.lease_until <= @now THEN 1 ELSE 0 END
FROM ` + looked + `
WHERE q.priority = @p AND q.due_at >= @at AND (q.due_at > @at OR q.id >= @id) AND q.due_at <= @now
ORDER BY q.due_at, q.id
OPTION (KEEPFIXED PLAN);
UPDATE q
SET due_at = CASE WHEN q.lapses >= 1 AND q.lapses <= @most - 2
        THEN DATEADD(millisecond, CONVERT(int, CONVERT(bigint, SUBSTRING(CONVERT(binary(16), NEWID()), 11, 6)) % {scatter of q.lapses}), @now) ELSE q.due_at END,
    ` + lapsed + `
OUTPUT inserted.id, inserted.priority, DATEDIFF_BIG(millisecond, '19700101', inserted.due_at) AS due_at
FROM @lost AS a
INNER JOIN {live} AS q WITH (XLOCK, READPAST, ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id
{entry joins}` + holder("q.leased_by") + `WHERE a.lost = 1 AND q.leased_by IS NOT NULL AND q.lease_until <= @now
` + fromListOptions + `;
`

// lapsed ends a lease that has expired, or whose consumer is not heard. The fence has the time of the claim.
var lapsed = `lease_until = '19700101',
    fence = CASE WHEN q.fence > CONVERT(bigint, {high fence}) THEN @mark ELSE q.fence + 1 END,
    lapses = CASE WHEN q.lapses < {last lapse} THEN q.lapses + 1 ELSE q.lapses END,
    leased_by = NULL,
    history = ` + expired(lapsedAt, lapsedAt+` - q.fence / 1048576`)

const lapsedAt = `DATEDIFF_BIG(millisecond, '19700101', CASE WHEN q.lease_until < @now THEN q.lease_until ELSE @now END)`

func (q *queue) Rescue(r sqlbatch.RescueParams) sqlbatch.Statement {
	days, ms := span(r.From.Due)
	return call(q.rescue, "@p smallint, @at_days int, @at_ms int, @id binary(16), @most int",
		sql.Named("p", int16(r.Priority)),
		sql.Named("at_days", days),
		sql.Named("at_ms", ms),
		sql.Named("id", r.From.ID[:]),
		sql.Named("most", int32(r.MaxCrashes)))
}
