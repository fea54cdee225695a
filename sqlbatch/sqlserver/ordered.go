package sqlserver

import (
	"database/sql"
	"math"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// The tables of an ordered queue, and how it is claimed from.

// seqIndexText is what reads of several slots walk, in the place of dueIndexText, and slotIndexText what reads of one slot and claims walk: nothing
// that settles or marks change is in them, neither the end of a lease nor the time of a retry. The clustered key stays the id's, by which
// settles come; so both grow at their ends, and ghosts lie before the marks of claims.
const (
	seqIndexText = `IF INDEXPROPERTY(OBJECT_ID({'live'}, N'U'), {'by seq'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {by seq} ON {live} (seq, slot)
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
`
	slotIndexText = `IF INDEXPROPERTY(OBJECT_ID({'live'}, N'U'), {'due'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {due} ON {live} (slot, seq)
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
`
)

// deadLineIndexText finds the keys that dead messages hold.
const deadLineIndexText = `SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID({'dead'}, N'U'), {'dead line'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {dead line} ON {dead} (slot, order_key) WHERE order_key IS NOT NULL;
`

// claimSlotsText goes through the parts twice. A snapshot would show a commit whole; here a
// commit gives its locks free one by one, and a scan passes places into which somebody
// inserts a moment later. So:
//
// First it locks what may be claimed (@free), by IX and the rows, as the claim of a plain queue does: READPAST
// leaves out what others have locked. Whatever it locks is committed, so at this moment all
// that was sent before is in the table: committed, or by a transaction that is open.
//
// Then it walks the same ranges and reads what is there, committed or not (@walked). So it
// sees all that was sent before one of those it has locked, save what was settled or deleted. What is
// walked and not locked is told of: others hold it, or its sender has not committed yet, or
// has done so a moment ago. Its key is closed then, and no other. Error 601, a page that moved
// under the walk, undoes the claim.
//
// Then it leases what is both free and walked.
//
// Both go through as many entries as the part may return, besides those that the member holds
// itself, so that a claim reads no more however many wait behind.
//
// A delete that is not committed cannot be seen by such a walk: that of an AckTx, by somebody who had
// this slot or this lease before. Where the caller draws conclusions from what is absent (parts in
// doubt), the gaps between what was walked are read once more with S locks. What is locked there is waited
// for a moment, that of the first such slot for a longer one; if it stays so, or a row came back, the
// slot is left out this time (@shut), as if there had been no room for it. XACT_ABORT is off meanwhile, or error 1222 would doom
// the transaction; whoever gives up waiting for the answer closes the session.
//
// The slots' rows are locked from the look at their owner to the end, so that whoever takes one
// anew, after a claim of unknown outcome, passes it over until that claim has ended. No lease
// ends after the membership.
func claimSlotsText(contents string) string {
	return session + `~SET DEADLOCK_PRIORITY LOW;
~SET LOCK_TIMEOUT 50;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, @now));
DECLARE @gone datetime2(3) = (SELECT m.until FROM {members} AS m WHERE m.id = @by);
IF @gone < @until
    SET @until = @gone;
` + partsTable + `DECLARE @free TABLE (id binary(16) NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @walked TABLE (o int NOT NULL, slot smallint NOT NULL, seq bigint NOT NULL, id binary(16) NOT NULL, fence bigint NOT NULL,
    due_at datetime2(3) NOT NULL, lease_until datetime2(3) NOT NULL, order_key varbinary(200) NULL, PRIMARY KEY CLUSTERED (o, seq, id));
DECLARE @ends TABLE (o int NOT NULL PRIMARY KEY CLUSTERED, slot smallint NOT NULL, after bigint NOT NULL, seq bigint NOT NULL);
DECLARE @shut TABLE (o int NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @count int;
DECLARE @full int;
DECLARE @o int;
~BEGIN TRANSACTION;
INSERT INTO @parts (o, slot, after, most, doubt)
SELECT a.o, a.slot, a.after, CASE WHEN a.most < @n THEN a.most ELSE @n END, a.doubt
` + fromParts + `INNER JOIN {slots} AS s WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({slots pk}), FORCESEEK) ON s.queue = {name} AND s.slot = a.slot
WHERE s.fence = a.fence AND s.member = @by AND @gone > @now AND NOT EXISTS (
    SELECT 1 FROM {queues} AS p WITH (READPAST, READCOMMITTEDLOCK) WHERE p.name = {name} AND p.paused = 1)
` + fromListOptions + `;
INSERT INTO @free (id)
SELECT TOP (@n) f.id
FROM @parts AS p
CROSS APPLY (
    SELECT TOP (p.most) u.id
    FROM (
        SELECT TOP (p.most) q.id, q.seq, q.due_at, q.lease_until, q.leased_by, q.lapses
        FROM ` + looked + `
        WHERE q.slot = p.slot AND q.seq > p.after AND ` + notMine + `
        ORDER BY q.seq) AS i
    INNER JOIN {live} AS u WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ({pk}), FORCESEEK) ON u.id = i.id
    WHERE i.due_at <= @now AND i.lease_until <= @now
      AND CASE WHEN i.leased_by IS NULL THEN i.lapses ELSE i.lapses + 1 END < @lapses
      AND u.due_at <= @now AND u.lease_until <= @now
    ORDER BY i.seq) AS f
ORDER BY p.o
` + fromListOptions + `;
INSERT INTO @walked (o, slot, seq, id, fence, due_at, lease_until, order_key)
SELECT TOP (@n) p.o, p.slot, w.seq, w.id, w.fence, w.due_at, w.lease_until, w.order_key
FROM @parts AS p
CROSS APPLY (
    SELECT TOP (p.most) q.seq, q.id, q.fence, q.due_at, q.lease_until, q.order_key
    FROM {live} AS q WITH (READUNCOMMITTED, INDEX ({due}), FORCESEEK)
    WHERE q.slot = p.slot AND q.seq > p.after AND ` + notMine + `
    ORDER BY q.seq) AS w
ORDER BY p.o, w.seq
` + fromListOptions + `;
SET @count = (SELECT COUNT(*) FROM @walked AS w);
IF @count >= @n
    SET @full = CASE WHEN @n > 0 THEN (SELECT MAX(w.o) FROM @walked AS w) ELSE 0 END;
INSERT INTO @ends (o, slot, after, seq)
SELECT p.o, p.slot, p.after,
       CASE WHEN p.o > @full OR p.most <= 0 THEN p.after
            WHEN p.o = @full OR c.n >= p.most THEN c.seq
            ELSE CONVERT(bigint, 0x7FFFFFFFFFFFFFFF) END
FROM @parts AS p
CROSS APPLY (SELECT COUNT(*) AS n, MAX(w.seq) AS seq FROM @walked AS w WHERE w.o = p.o) AS c;
~SET XACT_ABORT OFF;
SET @o = (SELECT MIN(p.o) FROM @parts AS p WHERE p.doubt = 1);
WHILE @o IS NOT NULL
BEGIN
    BEGIN TRY
        IF EXISTS (
            SELECT 1
            FROM ` + gaps + ` AS g
            INNER JOIN {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({due}), FORCESEEK) ON q.slot = g.slot AND q.seq > g.after AND q.seq <= g.last
            WHERE q.fence > 0 AND ` + notMine + `)
            INSERT INTO @shut (o) VALUES (@o);
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222
        BEGIN
            SET XACT_ABORT ON;
            THROW;
        END;
        SET LOCK_TIMEOUT 5;
        INSERT INTO @shut (o) VALUES (@o);
    END CATCH;
    SET @o = (SELECT MIN(p.o) FROM @parts AS p WHERE p.doubt = 1 AND p.o > @o);
END;
~SET XACT_ABORT ON;
~SET LOCK_TIMEOUT 50;
UPDATE q
` + claimSet + `
` + claimOutput + contents + `, inserted.slot, inserted.seq, inserted.order_key, CONVERT(bigint, NULL) AS wait
FROM @walked AS w
INNER JOIN @free AS f ON f.id = w.id
INNER JOIN {live} AS q WITH (UPDLOCK, ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = w.id
WHERE NOT EXISTS (SELECT 1 FROM @shut AS h WHERE h.o = w.o)
` + fromListOptions + `;
SELECT w.id, ` + notLeased + `DATEDIFF_BIG(millisecond, '19700101', w.due_at) AS due_at, ` + claimNothing + `, w.slot, w.seq, w.order_key,
       CASE WHEN w.due_at > @now AND w.due_at >= w.lease_until THEN DATEDIFF_BIG(millisecond, @now, w.due_at)
            WHEN w.lease_until > @now THEN DATEDIFF_BIG(millisecond, @now, w.lease_until) ELSE CONVERT(bigint, 0) END AS wait
FROM @walked AS w
WHERE NOT EXISTS (SELECT 1 FROM @free AS f WHERE f.id = w.id);
SELECT CONVERT(binary(16), NULL) AS id, ` + notLeased + `CONVERT(bigint, 0) AS due_at, ` + claimNothing + `, e.slot,
       CASE WHEN EXISTS (SELECT 1 FROM @shut AS h WHERE h.o = e.o) THEN e.after ELSE e.seq END AS seq, CONVERT(varbinary(200), NULL) AS order_key, CONVERT(bigint, NULL) AS wait
FROM @ends AS e;
~COMMIT TRANSACTION;
`
}

// notMine leaves out what the member holds itself, unless it wants to be told.
const notMine = `(@mine = 1 OR q.leased_by IS NULL OR q.leased_by <> @by OR q.lease_until <= @now)`

// gaps are where nothing was walked of the part @o: before, between and behind its rows.
const gaps = `(
                SELECT e.slot, b.after, CASE WHEN n.seq IS NULL THEN e.seq ELSE n.seq - 1 END AS last
                FROM (
                    SELECT s.after FROM @ends AS s WHERE s.o = @o
                    UNION ALL
                    SELECT w.seq FROM @walked AS w WHERE w.o = @o) AS b
                INNER JOIN @ends AS e ON e.o = @o
                CROSS APPLY (SELECT MIN(w.seq) AS seq FROM @walked AS w WHERE w.o = @o AND w.seq > b.after) AS n)`

// The columns of what is not leased.
const (
	notLeased = `0 AS priority, CONVERT(bigint, 0) AS fence, 0 AS attempts, 0 AS lapses, 0 AS expired, CONVERT(bigint, 0) AS enqueued_at,
       `
	claimNothing = `CONVERT(bigint, NULL) AS expires_at, ` + claimNoContents
)

const claimSlotsDeclaration = "@n int, @lease_days int, @lease_ms int, @by binary(16), @salt bigint, @lapses int, @list varbinary(max), @mine int"

func (q *queue) ClaimSlots(c sqlbatch.SlotClaim) sqlbatch.Statement {
	days, ms := span(build.Milliseconds(c.Lease))
	text, lapses, mine := q.claimSlots[0], int32(min(c.Lapses, math.MaxInt32)), int32(0)
	if c.Blind {
		text = q.claimSlots[1]
	}
	if c.Suspects {
		lapses = math.MaxInt32
	}
	if c.Mine {
		mine = 1
	}
	return q.orderedCall(text, claimSlotsDeclaration,
		sql.Named("n", int32(min(c.Rows, Dialect.Traits().ClaimRows))),
		sql.Named("lease_days", days),
		sql.Named("lease_ms", ms),
		sql.Named("by", c.Member[:]),
		sql.Named("salt", c.Salt),
		sql.Named("lapses", lapses),
		sql.Named("list", packParts(c.Parts)),
		sql.Named("mine", mine))
}

// horizonText reads how far numbers were drawn, and then takes the gate alone, through which every
// sender goes before he draws and after he has inserted (enqueueOrderedText). Once it is granted, whoever drew one of these
// numbers has inserted what claims see, committed or not, or never will. It asks no longer than
// senders may stand behind it; somebody who takes longer is told of as a sender without a name.
const horizonText = session + `DECLARE @drawn bigint = ` + drawn + `;
DECLARE @granted int;
~BEGIN TRANSACTION;
EXEC @granted = sys.sp_getapplock @Resource = {'gate'}, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 25;
IF @granted >= 0
BEGIN
    EXEC @granted = sys.sp_releaseapplock @Resource = {'gate'}, @LockOwner = N'Transaction';
END;
~COMMIT TRANSACTION;
SELECT (@drawn + 1) * 1048576 - 1 AS drawn, CASE WHEN @granted >= 0 THEN '' ELSE 'sender' END AS senders;
`

func (q *queue) Horizon() sqlbatch.Statement { return q.orderedCall(q.horizon, "") }

// Begun: EnqueueBegun draws.
func (q *queue) Begun() sqlbatch.Statement { return sqlbatch.Statement{} }
