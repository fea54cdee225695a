package sqlbatch

import (
	"database/sql"
	"strconv"
	"strings"
	"time"
)

// A claim is one request that takes the lanes from the highest priority down,
// each with what is left of the count, in one transaction: a failure in the third
// lane leaves nothing leased in the first. Each lane is a result set; a lane with
// nothing left to take is skipped, and a paused queue has no result set at all.
//
// DEADLOCK_PRIORITY LOW: if something unforeseen deadlocks, the claim loses; it
// is the safest to repeat. The read of the paused mark waits for a Pause that is
// under way rather than miss it.
//
// The commit is durable. A claim that a crash of the server undid would be
// claimed again with the same fence, and the first holder's ack would then
// settle the second holder's lease.
const (
	claimOpen = session + `~SET DEADLOCK_PRIORITY LOW;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, @now));
DECLARE @left int = @n;
IF EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused = 1)
    SET @left = 0;
~BEGIN TRANSACTION;
`
	claimClose = `~COMMIT TRANSACTION;
`
)

// claimFIFOLane seeks IX (priority, visible_at, id) from its oldest entry to @now:
// the order asked for is the order of the index, so nothing is sorted, and TOP
// with ORDER BY in the CTE is the only documented way to say which rows an
// UPDATE takes.
//
// UPDLOCK: a U lock on each entry while it is read, kept to the end, so no two
// claimers read one row; and the read locks rather than looks at row versions.
// (READCOMMITTEDLOCK would be ignored beside it.) READPAST: rows that other
// claimers, settles or uncommitted producers hold are skipped, in the index and in
// the lookup of the row. ROWLOCK: READPAST cannot skip page locks. INDEX with
// FORCESEEK: every claimer comes by the same path, and a missing index is error
// 8622, not a scan. KEEPFIXED PLAN: the table swings between empty and full, and
// recompiling for that finds the same plan.
//
// @now has the column's type, so the comparison is a plain range of the index.
// deleted.visible_at is when the message was due. OUTPUT promises no order, and
// its rows may precede an error: the claim counts once all have been read.
const claimFIFOLane = `IF @left > 0
BEGIN
    WITH c AS (
        SELECT TOP (@left) id, priority, visible_at, enqueued_at, fence, attempts, dedup_key, leased_by, headers, body
        FROM {live} WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({ready}), FORCESEEK)
        WHERE priority = {priority} AND visible_at <= @now
        ORDER BY visible_at, id
    )
    UPDATE c
    SET visible_at = @until, fence = fence + 1, attempts = attempts + 1, leased_by = @by
    ` + claimOutput + `
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
`

// claimAnyLane walks the same index with the same hints, but leaves the choice
// to the server: without an order to keep it may fetch rows ahead as they come.
// The table stands in FROM because an INDEX hint on the target itself is error
// 1069.
const claimAnyLane = `IF @left > 0
BEGIN
    UPDATE TOP (@left) q
    SET visible_at = @until, fence = q.fence + 1, attempts = q.attempts + 1, leased_by = @by
    ` + claimOutput + `
    FROM {live} AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({ready}), FORCESEEK)
    WHERE q.priority = {priority} AND q.visible_at <= @now
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
`

const claimOutput = `OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           inserted.dedup_key, inserted.headers, inserted.body`

const claimDeclaration = "@n int, @lease_days int, @lease_ms int, @by nvarchar(200)"

// claimText is the whole claim: the lane once for each priority.
func claimText(lane string) string {
	var b strings.Builder
	b.WriteString(claimOpen)
	for p := PriorityUrgent; p >= PriorityLow; p-- {
		b.WriteString(strings.ReplaceAll(lane, "{priority}", strconv.Itoa(p)))
	}
	b.WriteString(claimClose)
	return b.String()
}

func (q *sqlServerQueue) Claim(p ClaimParams) Statement {
	days, ms := span(milliseconds(p.Lease))
	rows := min(p.Rows, SQLServer.Traits().ClaimRows)
	return call(q.claim[p.Order], claimDeclaration,
		sql.Named("n", int32(rows)),
		sql.Named("lease_days", days),
		sql.Named("lease_ms", ms),
		sql.Named("by", p.Member[:]))
}

// nextDueText reads the first entry of each lane of IX: four seeks.
//
// READPAST never waits: entries that a claim or an uncommitted producer holds
// are passed over, as a claim would pass them over. It needs READCOMMITTEDLOCK,
// without which it does nothing where READ_COMMITTED_SNAPSHOT is on. The S lock
// on each entry ends with the read of it; nothing is held. A dirty read instead
// would see rows of transactions still open as due and have the caller claim in
// vain. A locked row of {queues} counts as not paused: the claim that follows
// waits for it.
const nextDueText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT DATEDIFF_BIG(millisecond, @now, MIN(f.visible_at)) AS due_in_ms
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
    SELECT TOP (1) q.visible_at
    FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({ready}), FORCESEEK)
    WHERE q.priority = p.priority
    ORDER BY q.visible_at, q.id
) AS f
WHERE NOT EXISTS (SELECT 1 FROM {queues} AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = {name} AND s.paused = 1)
OPTION (KEEPFIXED PLAN);
`

func (q *sqlServerQueue) NextDue() Statement { return call(q.nextDue, "") }

// extendText moves the end of the leases: fences stay. Path and locks are those
// of ackText. The commit is durable: an extension that a crash undid would be a lease
// that another consumer may take while its holder still counts on it.
const extendText = session + `DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, SYSUTCDATETIME()));
UPDATE q
SET visible_at = @until
OUTPUT deleted.id, deleted.fence
` + fromItems + `;
`

func (q *sqlServerQueue) Extend(items []Item, lease time.Duration) Statement {
	days, ms := span(milliseconds(lease))
	return call(q.extend, "@a varbinary(8000), @lease_days int, @lease_ms int",
		sql.Named("a", packItems(items)),
		sql.Named("lease_days", days),
		sql.Named("lease_ms", ms))
}
