package sqlserver

import "strings"

// A place defines how entries are found: those of several slots by number, and those of one slot by the index that begins with it. Then
// locks on entries of other slots do not matter.
type place struct {
	index, slots string
	alone        string // the condition that there is only one slot
	slot         string // declares @slot
}

func placeOf(one bool) place {
	if one {
		return place{index: "{due}", slots: "{r}slot = @slot", alone: " AND {r}slot = @slot", slot: oneSlot}
	}
	return place{index: "{by seq}", slots: "EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = {r}slot)"}
}

// walkIn notes entries of a range of numbers that meet a condition, "" for all.
func (p place) walkIn(most, above, from, upto, only string) string {
	return `INSERT INTO @walked (seq, id, above)
SELECT TOP (` + most + `) q.seq, q.id, ` + above + `
FROM {live} AS q WITH (READCOMMITTEDLOCK, INDEX (` + p.index + `), FORCESEEK)
WHERE q.seq > ` + from + ` AND q.seq <= ` + upto + ` AND ` + of("q.", p.slots) + only + `
ORDER BY q.seq
` + fromListOptions + `;
`
}

// fullAt ends the answer where its limit has ended a range, unless it has ended before. The limit counts entries: the rows of some might be
// gone before they are looked up. A limit of 0 needs no end.
func fullAt(above string) string {
	return `IF @left <= 0 AND @end = ` + atEnd + `
    SELECT @end = CASE WHEN COUNT(*) > 0 THEN MAX(w.seq) ELSE @end END
    FROM @walked AS w
    WHERE w.above = ` + above + `;
`
}

// firstWait is how long, in milliseconds, a read waits for each lock before it begins to skip locked rows.
const firstWait = "5"

// readThrough reads the entries of the ranges, and the rows, without skipping any. It notes whether it met a lock.
func readThrough(walks, rows string) string {
	return `DECLARE @blocked int = 0;
DECLARE @end bigint = ` + atEnd + `;
DECLARE @left int;
~SET LOCK_TIMEOUT ` + firstWait + `;
~SET XACT_ABORT OFF;
BEGIN TRY
    IF @walks = 1
    BEGIN
` + indent("        ", walks) + `    END;
` + indent("    ", rows) + `END TRY
BEGIN CATCH
    IF ERROR_NUMBER() <> 1222
        THROW;
    SET @blocked = 1;
END CATCH;
~SET XACT_ABORT ON;
~SET LOCK_TIMEOUT 50;
`
}

// mostPassed is the most locked entries that a read skips in each of its ranges. At the next one the range ends.
const mostPassed = "100"

// readPast reads the entries and the rows again, after readThrough met a lock. count is the number of ranges, and bounds sets the bounds of
// range @range.
//
// It finds the next locked entry (@next): a dirty read returns it, and READPAST skips it. It reads the entries between the last one and
// this one with READCOMMITTEDLOCK, then notes this one like the others, and continues. A dirty read does not find a row that is being
// deleted, so such a row is in between, where the read waits for it. It also waits there for an entry that was locked after the search. The
// range ends where a dirty read finds mostPassed entries more than the limit.
//
// Then it finds the entries whose rows READPAST skips (@passed), and reads the rows of all others. In addition to the locked entries,
// @passed has rows that a transaction has changed, because a change of a row does not lock its entry, and rows that were locked or deleted
// after their entries were read. It returns them as a dirty read finds them. A row that the dirty read does not find is being deleted, or
// is gone: the read waits for its lock. If it still exists, it is returned as a locked one. A dirty read does not touch the body, whose
// pages might move.
func (p place) readPast(count, bounds, rows string) string {
	return `IF @blocked = 1
BEGIN
    DECLARE @range int = 0;
    DECLARE @met int;
    DECLARE @at bigint;
    DECLARE @whole bigint;
    DECLARE @stop bigint;
    DECLARE @next bigint;
    DECLARE @id binary(16);
    DECLARE @its smallint;
    DECLARE @passed TABLE (seq bigint NOT NULL, id binary(16) NOT NULL, PRIMARY KEY CLUSTERED (seq, id));
    SET @end = ` + atEnd + `;
    DELETE w
    FROM @walked AS w;
    WHILE @walks = 1 AND @range < ` + count + `
    BEGIN
` + bounds + `        SET @met = 0;
        SELECT @stop = CASE WHEN COUNT(*) < @left + ` + mostPassed + ` THEN @whole ELSE MAX(f.seq) END
        FROM (
            SELECT TOP (@left + ` + mostPassed + `) q.seq
            FROM {live} AS q WITH (READUNCOMMITTED, INDEX (` + p.index + `), FORCESEEK)
            WHERE q.seq > @at AND q.seq <= @whole AND ` + of("q.", p.slots) + `
            ORDER BY q.seq) AS f
        ` + fromListOptions + `;
        WHILE @left > 0 AND @at < @stop
        BEGIN
            SET @next = NULL;
            SELECT TOP (1) @next = d.seq, @id = d.id, @its = d.slot
            FROM {live} AS d WITH (READUNCOMMITTED, INDEX (` + p.index + `), FORCESEEK)
            WHERE d.seq > @at AND d.seq <= @stop` + of("d.", p.alone) + ` AND NOT EXISTS (
                SELECT 1
                FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX (` + p.index + `), FORCESEEK)
                WHERE q.seq = d.seq AND q.slot = d.slot AND q.id = d.id)
            ORDER BY d.seq
            ` + fromListOptions + `;
            SET @met = @met + 1;
            IF @met > ` + mostPassed + `
            BEGIN
                SET @stop = CASE WHEN @next IS NULL THEN @stop ELSE @next - 1 END;
                SET @next = NULL;
            END;
` + indent("            ", p.walkIn("@left", "@range", "@at", "CASE WHEN @next IS NULL THEN @stop ELSE @next - 1 END", "")) + `            SET @left = @left - @@ROWCOUNT;
            IF @left > 0 AND @next IS NOT NULL
            BEGIN
                INSERT INTO @walked (seq, id, above)
                SELECT @next, @id, @range
                WHERE ` + strings.ReplaceAll(p.slots, "{r}slot", "@its") + `
                UNION ALL
                SELECT d.seq, d.id, @range
                FROM {live} AS d WITH (READUNCOMMITTED, INDEX (` + p.index + `), FORCESEEK)
                WHERE d.seq = @next AND d.id <> @id AND ` + of("d.", p.slots) + `
                ` + fromListOptions + `;
                SET @left = @left - @@ROWCOUNT;
            END;
            SET @at = CASE WHEN @next IS NULL THEN @stop ELSE @next END;
        END;
        IF @left > 0 AND @stop < @whole AND @stop < @end
            SET @end = @stop;
` + indent("        ", fullAt("@range")) + `        SET @range = @range + 1;
    END;
    INSERT INTO @passed (seq, id)
    SELECT w.seq, w.id
    FROM @walked AS w
    WHERE NOT EXISTS (
        SELECT 1
        FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK)
        WHERE q.id = w.id AND q.seq = w.seq)
    ` + fromListOptions + `;
    DELETE w
    FROM @walked AS w
    WHERE EXISTS (SELECT 1 FROM @passed AS p WHERE p.seq = w.seq AND p.id = w.id);
` + indent("    ", rows) + `    INSERT INTO @rows ` + rowColumns + `
    SELECT ` + strings.Replace(rowValues, "DATALENGTH(q.body)", "CONVERT(bigint, 0)", 1) + `,
           0, 0, 1
    FROM @passed AS p
    INNER JOIN {live} AS q WITH (READUNCOMMITTED, INDEX ({pk}), FORCESEEK) ON q.id = p.id AND q.seq = p.seq
    ` + fromListOptions + `;
    DELETE p
    FROM @passed AS p
    WHERE EXISTS (SELECT 1 FROM @rows AS r WHERE r.seq = p.seq AND r.id = p.id);
    INSERT INTO @rows ` + rowColumns + `
    SELECT q.seq, q.id, q.slot, 0, q.fence, 0, 0, 0, 0, 0, NULL, 0, q.order_key, 0, 0, 0, 0, 0, 1
    FROM @passed AS p
    INNER JOIN {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK) ON q.id = p.id AND q.seq = p.seq
    ` + fromListOptions + `;
END;
`
}
