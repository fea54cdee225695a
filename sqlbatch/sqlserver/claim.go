package sqlserver

import (
	"database/sql"
	"math"
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// A claim is one request that takes the lanes from the highest priority down,
// each with what is left of the count, in one transaction: a failure in the third
// lane leaves nothing leased in the first. Each lane is a result set; a lane with
// nothing left to take is skipped, and a paused queue has no result set at all.
// There are two lanes a priority: first what was leased and ran out (LX), then
// what nobody leases (IX).
//
// DEADLOCK_PRIORITY LOW: if something unforeseen deadlocks, the claim loses; it
// is the safest to repeat. READPAST on the paused mark, with READCOMMITTEDLOCK
// without which it does nothing where READ_COMMITTED_SNAPSHOT is on: somebody's
// open transaction on the table of queues does not stop the claims; a Pause that
// is under way holds for those that begin after it.
//
// @mark is where fences of this millisecond begin: see FenceBits.
//
// The commit does not ask for delayed durability. A claim that a crash of the
// server undid is made again, with another fence; but until then its first holder
// would work on what somebody else has, too.
const (
	claimOpen = session + `~SET DEADLOCK_PRIORITY LOW;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, @now));
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @left int = @n;
IF EXISTS (SELECT 1 FROM {queues} AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = {name} AND s.paused = 1)
    SET @left = 0;
~BEGIN TRANSACTION;
`
	claimClose = `~COMMIT TRANSACTION;
`
)

// claimFIFOLane seeks one of the two indexes (priority, visible_at, id) from its
// oldest entry to @now: the order asked for is the order of the index, so nothing
// is sorted, and TOP with ORDER BY in the CTE is the only documented way to say
// which rows an UPDATE takes. The predicate on leased_by is the index's own filter:
// without it the index could not be used (error 8622).
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
// Suspects that are not asked for are passed over by their entries, which carry
// lapses.
//
// @now has the column's type, so the comparison is a plain range of the index.
// deleted.visible_at is when the message was due. No column changes its width, so
// a claim never splits a page of the table. OUTPUT promises no order, and its rows
// may precede an error: the claim counts once all have been read.
const claimFIFOLane = `IF @left > 0
BEGIN
    WITH c AS (
        SELECT TOP (@left) id, priority, visible_at, enqueued_at, expires_at, fence, attempts, lapses, dedup_key, leased_by, headers, body
        FROM {live} WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({lane}), FORCESEEK)
        WHERE priority = {priority} AND visible_at <= @now AND leased_by {is} AND {lapses} < @lapses
        ORDER BY visible_at, id
    )
    UPDATE c
    {set}
    {output}
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
`

// claimAnyLane walks the same indexes with the same hints, but leaves the choice
// to the server: without an order to keep it may fetch rows ahead as they come.
// The table stands in FROM because an INDEX hint on the target itself is error
// 1069.
const claimAnyLane = `IF @left > 0
BEGIN
    UPDATE TOP (@left) c
    {set}
    {output}
    FROM {live} AS c WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({lane}), FORCESEEK)
    WHERE priority = {priority} AND visible_at <= @now AND leased_by {is} AND {lapses} < @lapses
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
`

// A fence grows from where the millisecond begins, or from where it is if that is
// greater.
const (
	claimSet = `SET visible_at = @until,
        fence = CASE WHEN c.fence > @mark THEN c.fence ELSE @mark END + @salt,
        attempts = c.attempts + 1,
        {lapse}leased_by = @by`

	claimOutput = `OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           `

	claimContents   = `inserted.dedup_key, inserted.headers, inserted.body`
	claimNoContents = `CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body`
)

const claimDeclaration = "@n int, @lease_days int, @lease_ms int, @by binary(16), @salt bigint, @lapses int"

// claimText is the whole claim: both lanes once for each priority. A lapse is
// counted when a lease that ran out is claimed; a count that has no room left
// stays.
func claimText(lane, contents string) string {
	lane = strings.NewReplacer("{set}", claimSet, "{output}", claimOutput+contents).Replace(lane)
	ranOut := strings.NewReplacer("{lane}", "{leased}", "{is}", "IS NOT NULL", "{lapses}", "lapses + 1",
		"{lapse}", "lapses = CASE WHEN c.lapses < 32767 THEN c.lapses + 1 ELSE c.lapses END,\n        ").Replace(lane)
	unleased := strings.NewReplacer("{lane}", "{ready}", "{is}", "IS NULL", "{lapses}", "lapses",
		"{lapse}", "").Replace(lane)
	var b strings.Builder
	b.WriteString(claimOpen)
	for p := sqlbatch.PriorityUrgent; p >= sqlbatch.PriorityLow; p-- {
		b.WriteString(strings.ReplaceAll(ranOut+unleased, "{priority}", strconv.Itoa(p)))
	}
	b.WriteString(claimClose)
	return b.String()
}

func (q *queue) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	days, ms := span(build.Milliseconds(p.Lease))
	rows := min(p.Rows, Dialect.Traits().ClaimRows)
	lapses := int32(math.MaxInt32)
	if !p.Suspects {
		lapses = int32(min(p.Lapses, math.MaxInt32))
	}
	contents := 0
	if p.Blind {
		contents = 1
	}
	return call(q.claim[p.Order][contents], claimDeclaration,
		sql.Named("n", int32(rows)),
		sql.Named("lease_days", days),
		sql.Named("lease_ms", ms),
		sql.Named("by", p.Member[:]),
		sql.Named("salt", p.Salt),
		sql.Named("lapses", lapses))
}

// nextDueText reads the first entry of each lane of IX and LX: eight seeks.
//
// READPAST never waits: entries that a claim or an uncommitted producer holds
// are passed over, as a claim would pass them over. It needs READCOMMITTEDLOCK,
// without which it does nothing where READ_COMMITTED_SNAPSHOT is on. The S lock
// on each entry ends with the read of it; nothing is held. A dirty read instead
// would see rows of transactions still open as due and have the caller claim in
// vain. A locked row of {queues} counts as not paused, as in a claim.
const nextDueText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT DATEDIFF_BIG(millisecond, @now, MIN(f.visible_at)) AS due_in_ms
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
` + firstOfLanes + `) AS f
WHERE NOT EXISTS (SELECT 1 FROM {queues} AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = {name} AND s.paused = 1)
OPTION (KEEPFIXED PLAN);
`

// firstOfLanes is the first place of each of the two lanes of a priority p.
const firstOfLanes = `    SELECT u.visible_at FROM (
        SELECT TOP (1) q.visible_at
        FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({ready}), FORCESEEK)
        WHERE q.priority = p.priority AND q.leased_by IS NULL
        ORDER BY q.visible_at, q.id) AS u
    UNION ALL
    SELECT l.visible_at FROM (
        SELECT TOP (1) q.visible_at
        FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({leased}), FORCESEEK)
        WHERE q.priority = p.priority AND q.leased_by IS NOT NULL
        ORDER BY q.visible_at, q.id) AS l
`

func (q *queue) NextDue() sqlbatch.Statement { return call(q.nextDue, "") }
