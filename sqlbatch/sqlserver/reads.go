package sqlserver

import (
	"database/sql"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// Reads of an ordered queue by the owners of its slots.
//
// A read walks the index with READCOMMITTEDLOCK, without READPAST and without dirty reads. Each entry there is committed, or an open
// transaction has inserted or deleted it and holds an X lock on it. The read misses no committed row, and none that a rollback restores,
// because it never skips a locked entry that it has not seen.
//
// First it reads the entries and the rows as if there were no locks (readThrough), and waits for each lock for at most firstWait: most
// transactions are shorter. Only if that fails does it read in a second way (readPast), which skips locked rows that it can see, waits for
// the others for up to 50 ms, and then fails as a whole.
//
// A read holds one S lock at a time, on an entry or on a row. It reads the entries (@walked), then the rows without their contents (@rows),
// each into a table variable, then the keys that dead messages hold, and then the contents. If it looked up a row while it holds the lock
// on its entry, an ack, which locks the row first and then the entry, would wait for the read, and the read for the ack. The dead messages
// are read after the rows: a message that has left the live table before its row was looked for is dead by then. The number of the last
// redrive is read last.
//
// It waits for no row of another table. It reads the rows of consumers, slots and the queue uncommitted, since others might have locked
// them. Only the reader's own heartbeat writes the time in its row, and the reader counts its time from heartbeats that were answered. A
// change of a slot's owner that is rolled back costs a look. A redrive changes its number after it has inserted its messages, and never to
// a number that was there before. A reader that has seen the number therefore finds the messages, as locked ones if they are not
// committed; after a rollback it reads once more.
//
// XACT_ABORT is off for TRY. A statement that fails with error 1222 leaves nothing in a table variable.
const readOpen = session + `~SET DEADLOCK_PRIORITY LOW;
~SET LOCK_TIMEOUT 50;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @walks int = 0;
DECLARE @owned TABLE (slot smallint NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @walked TABLE (seq bigint NOT NULL, id binary(16) NOT NULL, above int NOT NULL, PRIMARY KEY CLUSTERED (seq, id));
DECLARE @rows TABLE (seq bigint NOT NULL, id binary(16) NOT NULL, slot smallint NOT NULL, priority int NOT NULL, fence bigint NOT NULL, attempts int NOT NULL, lapses int NOT NULL, expired int NOT NULL,
    enqueued_at bigint NOT NULL, due_at bigint NOT NULL, expires_at bigint NULL, size bigint NOT NULL, order_key varbinary(200) NULL, wait bigint NOT NULL, lives bigint NOT NULL,
    holder int NOT NULL, given int NOT NULL, held int NOT NULL, locked int NOT NULL, PRIMARY KEY CLUSTERED (seq, id));
INSERT INTO @owned (slot)
SELECT s.slot
` + fromOwned + `INNER JOIN {slots} AS s WITH (READUNCOMMITTED, INDEX ({slots pk}), FORCESEEK) ON s.queue = {name} AND s.slot = a.slot
WHERE s.fence = a.fence AND s.consumer = @by
` + fromListOptions + `;
IF (SELECT COUNT(*) FROM @owned AS o) = DATALENGTH(@list) / 11 AND EXISTS (SELECT 1 FROM {consumers} AS m WITH (READUNCOMMITTED) WHERE m.id = @by AND m.until > @now) AND ` + notPaused + `
    SET @walks = 1;
`

// findWatermark reads the last number drawn, and then takes exclusively the application lock that every sender shares from before its draw
// until after its insert (enqueueGate). Its wait for the lock is limited to the time for which senders may wait behind the read. The read
// ends at the numbers drawn so far in both cases. If it has the lock, the last of them is a watermark: every message with a number up to it
// is in the table, or its transaction has ended.
const findWatermark = `DECLARE @last bigint = (` + drawn + ` + 1) * 1048576 - 1;
DECLARE @drawn bigint = -1;
DECLARE @gate nvarchar(255) = {gate};
DECLARE @granted int;
~BEGIN TRANSACTION;
EXEC @granted = sys.sp_getapplock @Resource = @gate, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 25;
IF @granted >= 0
BEGIN
    SET @drawn = @last;
    EXEC @granted = sys.sp_releaseapplock @Resource = @gate, @LockOwner = N'Transaction';
END;
~COMMIT TRANSACTION;
IF @last > @upto
    SET @last = @upto;
DECLARE @middle bigint = CASE WHEN @cursor < @last THEN @cursor ELSE @last END;
DECLARE @first bigint = CASE WHEN @cursor > @from THEN @cursor ELSE @from END;
`

// fromOwned selects the slots of @list, of ownedBytes each.
const (
	ownedBytes = 2 + 8 + 1

	fromOwned = `FROM (
    SELECT CONVERT(smallint, SUBSTRING(@list, 11 * (x.i + y.i) + 1, 2)) AS slot,
           CONVERT(bigint, SUBSTRING(@list, 11 * (x.i + y.i) + 3, 8)) AS fence,
           CONVERT(int, SUBSTRING(@list, 11 * (x.i + y.i) + 11, 1)) AS doubt
    FROM ` + slotNumbers + `
    WHERE x.i + y.i < DATALENGTH(@list) / 11
) AS a
`
)

func packOwned(list []sqlbatch.OwnedSlot) []byte {
	b := make([]byte, 0, ownedBytes*len(list))
	for _, own := range list {
		b = binary.BigEndian.AppendUint16(b, uint16(own.Slot))
		b = binary.BigEndian.AppendUint64(b, uint64(own.Fence))
		b = append(b, flag(own.Doubt))
	}
	return b
}

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}

// indent puts spaces before each line.
func indent(by, text string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

const oneSlot = `DECLARE @slot smallint = (SELECT MIN(o.slot) FROM @owned AS o);
`

// The columns of a row except its contents.
const (
	byOther    = `q.leased_by IS NOT NULL AND q.leased_by <> @by`
	lapsedThen = `CASE WHEN ` + byOther + ` AND q.lapses < {last lapse} THEN q.lapses + 1 ELSE q.lapses END`

	rowColumns = `(seq, id, slot, priority, fence, attempts, lapses, expired, enqueued_at, due_at, expires_at, size, order_key, wait, lives, holder, given, held, locked)`
	rowValues  = `q.seq, q.id, q.slot, q.priority, q.fence,
       CASE WHEN q.leased_by = @by OR q.attempts >= {last attempt} THEN q.attempts ELSE q.attempts + 1 END,
       ` + lapsedThen + `,
       CASE WHEN q.expires_at <= @now THEN 1 ELSE 0 END,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at), DATEDIFF_BIG(millisecond, '19700101', q.due_at), DATEDIFF_BIG(millisecond, '19700101', q.expires_at),
       DATALENGTH(q.body), q.order_key,
       CASE WHEN q.lease_until > @now AND q.lease_until > q.due_at AND (q.leased_by IS NULL OR q.leased_by <> @by) THEN DATEDIFF_BIG(millisecond, @now, q.lease_until)
            WHEN q.due_at > @now THEN DATEDIFF_BIG(millisecond, @now, q.due_at) ELSE CONVERT(bigint, 0) END,
       CASE WHEN q.expires_at IS NULL THEN CONVERT(bigint, 0) WHEN q.expires_at <= @now THEN CONVERT(bigint, 1) ELSE DATEDIFF_BIG(millisecond, @now, q.expires_at) END,
       CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = @by THEN 1 ELSE 2 END`
)

// rowsOf looks up the rows of the entries that were walked.
func rowsOf(given, condition string) string {
	return `INSERT INTO @rows ` + rowColumns + `
SELECT ` + rowValues + `,
       CASE WHEN ` + given + ` THEN 1 ELSE 0 END, 0, 0
FROM @walked AS w
INNER JOIN {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK) ON q.id = w.id AND q.seq = w.seq
` + condition + fromListOptions + `;
`
}

// readClose returns the rows, those with their contents first, and then the last row of the answer. Contents belong to the fence that was
// read. A row that has since changed, or is locked, is returned without contents. An UPDATE returns contents because it notes which ones.
func readClose(fence, upto string) string {
	columns := func(row, contents, given string) string {
		return strings.NewReplacer("{r}", row, "{contents}", contents, "{given}", given).Replace(`{r}id, {r}priority, {r}fence, {r}attempts, {r}lapses, {r}expired, {r}enqueued_at, {r}due_at, {r}expires_at, {contents}, {r}size,
       {r}slot, {r}seq, {r}order_key, {r}wait, {r}lives, {r}holder, {r}held, {given} AS given, {r}locked`)
	}
	return findHeld + `UPDATE r
SET given = 2
OUTPUT ` + columns("inserted.", "c.dedup_key, c.type, c.headers, c.body", "1") + `
FROM @rows AS r
INNER JOIN {live} AS c WITH (READPAST, READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK) ON c.id = r.id AND c.fence = r.fence
WHERE r.given = 1
` + fromListOptions + `;
SELECT ` + columns("r.", claimNoContents, "0") + `
FROM @rows AS r
WHERE r.given < 2
ORDER BY r.seq, r.id;
SELECT CONVERT(binary(16), NULL) AS id, @walks AS priority, ` + fence + ` AS fence, 0 AS attempts, 0 AS lapses, 0 AS expired,
       ` + redriven + ` AS enqueued_at, ` + upto + ` AS due_at, ` + noContents + `, CONVERT(bigint, 0) AS size,
       ` + noPlace + `;
`
}

const (
	// noAttempt, noContents and noPlace are the columns of a row that has no values for them.
	noAttempt = `0 AS priority, CONVERT(bigint, 0) AS fence, 0 AS attempts, 0 AS lapses, 0 AS expired, CONVERT(bigint, 0) AS enqueued_at,
       `
	noContents = `CONVERT(bigint, NULL) AS expires_at, ` + claimNoContents

	noPlace = `CONVERT(smallint, 0) AS slot, CONVERT(bigint, 0) AS seq, CONVERT(varbinary(200), NULL) AS order_key, CONVERT(bigint, 0) AS wait, CONVERT(bigint, 0) AS lives,
       0 AS holder, 0 AS held, 0 AS given, 0 AS locked`

	redriven = `(SELECT s.redriven FROM {queues} AS s WITH (READUNCOMMITTED) WHERE s.name = {name})`

	// findHeld notes the rows whose keys dead messages hold, if the queue has this policy, which is assumed if its row is locked. If it meets
	// a locked dead message, which might be gone after a commit or back after a rollback, it looks at each row alone: that key is held.
	findHeld = `IF NOT EXISTS (SELECT 1 FROM {queues} AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = {name} AND s.holds = 0)
BEGIN
    DECLARE @row bigint = 0;
    DECLARE @to bigint = ` + atEnd + `;
~SET LOCK_TIMEOUT ` + firstWait + `;
~SET XACT_ABORT OFF;
    WHILE @row IS NOT NULL
    BEGIN
        BEGIN TRY
            UPDATE r
            SET held = 1
            FROM @rows AS r
            WHERE r.seq >= @row AND r.seq <= @to AND r.order_key IS NOT NULL AND EXISTS (
                SELECT 1
                FROM {dead} AS d WITH (READCOMMITTEDLOCK, INDEX ({dead line}), FORCESEEK)
                WHERE d.slot = r.slot AND d.order_key = r.order_key AND d.order_key IS NOT NULL)
            OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
        END TRY
        BEGIN CATCH
            IF ERROR_NUMBER() <> 1222
                THROW;
            UPDATE r
            SET held = 1
            FROM @rows AS e
            INNER JOIN @rows AS r ON r.slot = e.slot AND r.order_key = e.order_key
            WHERE e.seq = @row;
            SET @to = @row;
            SET LOCK_TIMEOUT 0;
        END CATCH;
        SET @row = (SELECT MIN(r.seq) FROM @rows AS r WHERE r.seq > @to AND r.held = 0 AND r.order_key IS NOT NULL);
        SET @to = @row;
    END;
~SET XACT_ABORT ON;
END;
`
	atEnd = `CONVERT(bigint, 0x7FFFFFFFFFFFFFFF)`
)

// keysTable holds order keys. keyNumbers counts to 16,383, as numbers does.
const (
	keysTable = `DECLARE @keys TABLE (order_key varbinary(200) NOT NULL PRIMARY KEY CLUSTERED);
IF DATALENGTH(@key_list) > 0
    INSERT INTO @keys (order_key)
    SELECT SUBSTRING(@key_bytes, CONVERT(int, SUBSTRING(@key_list, 5 * (z.i + x.i + y.i) + 1, 4)) + 1, CONVERT(int, SUBSTRING(@key_list, 5 * (z.i + x.i + y.i) + 5, 1)))
    FROM (VALUES (0), (1024), (2048), (3072), (4096), (5120), (6144), (7168), (8192), (9216), (10240), (11264), (12288), (13312), (14336), (15360)) AS z (i)
    CROSS JOIN ` + slotNumbers + `
    WHERE z.i + x.i + y.i < DATALENGTH(@key_list) / 5;
`
)

// ofOtherKeys leaves out the entries of rows of the keys. Without keys no row is looked up. A dirty read keeps the rule of one S lock: the
// key of a row never changes, and an entry whose row is gone stays.
const ofOtherKeys = ` AND NOT EXISTS (
    SELECT 1
    FROM {live} AS r WITH (READUNCOMMITTED, INDEX ({pk}), FORCESEEK)
    INNER JOIN @keys AS k ON k.order_key = r.order_key
    WHERE @keyed = 1 AND r.id = q.id AND r.seq = q.seq)`

// reach ends the range above the cursor at the last entry that a read with keys walks.
func (p place) reach() string {
	return `DECLARE @keyed int = CASE WHEN DATALENGTH(@key_list) > 0 THEN 1 ELSE 0 END;
DECLARE @reached int = 0;
IF @keyed = 1
    SELECT @reached = CASE WHEN COUNT(*) < ` + mostWalked + ` THEN 0 ELSE 1 END, @last = CASE WHEN COUNT(*) < ` + mostWalked + ` THEN @last ELSE MAX(f.seq) END
    FROM (
        SELECT TOP (` + mostWalked + `) q.seq
        FROM {live} AS q WITH (READUNCOMMITTED, INDEX (` + p.index + `), FORCESEEK)
        WHERE q.seq > @first AND q.seq <= @last AND ` + of("q.", p.slots) + `
        ORDER BY q.seq) AS f
    ` + fromListOptions + `;
`
}

var mostWalked = strconv.Itoa(sqlbatch.MostWalked)

func readText(one bool) string {
	p := placeOf(one)
	rows := rowsOf("w.above = 1 AND q.seq > @old AND DATALENGTH(q.body) <= @inline AND (q.order_key IS NULL OR NOT EXISTS (SELECT 1 FROM @keys AS k WHERE k.order_key = q.order_key))", "")
	return readOpen + findWatermark + p.slot + keysTable + p.reach() +
		readThrough(p.walkIn("@behind", "0", "@from", "@middle", "")+`SET @left = @behind - @@ROWCOUNT;
`+fullAt("0")+p.walkIn("@n", "1", "@first", "@last", ofOtherKeys)+`SET @left = @n - @@ROWCOUNT;
`+fullAt("1"), rows) +
		p.readPast("2", `        SET @left = CASE WHEN @range = 0 THEN @behind ELSE @n END;
        SET @at = CASE WHEN @range = 0 THEN @from ELSE @first END;
        SET @whole = CASE WHEN @range = 0 THEN @middle ELSE @last END;
`, rows) + `IF @reached = 1 AND @end > @last
    SET @end = @last;
` +
		readClose("@drawn", "@end")
}

// refillText looks up all rows that it has walked, and keeps the rows of the keys.
func refillText(one bool) string {
	const ofKeys = "EXISTS (SELECT 1 FROM @keys AS k WHERE k.order_key = {r}order_key)"
	p := placeOf(one)
	rows := rowsOf("q.seq > @old AND DATALENGTH(q.body) <= @inline", "WHERE "+of("q.", ofKeys)+"\n")
	return readOpen + p.slot + keysTable +
		readThrough(p.walkIn("@behind", "0", "@from", "@upto", "")+`SET @left = @behind - @@ROWCOUNT;
`+fullAt("0"), rows) +
		p.readPast("1", `        SET @left = @behind;
        SET @at = @from;
        SET @whole = @upto;
`, rows) + `IF @blocked = 1
    DELETE r
    FROM @rows AS r
    WHERE NOT ` + of("r.", ofKeys) + `;
DECLARE @count int = (SELECT COUNT(*) FROM @rows AS r);
IF @count >= @n
BEGIN
    SET @end = CASE WHEN @n > 0 THEN (SELECT MAX(f.seq) FROM (SELECT TOP (@n) r.seq FROM @rows AS r ORDER BY r.seq, r.id) AS f) ELSE @from END;
    DELETE r
    FROM @rows AS r
    WHERE r.seq > @end;
END;
` + readClose("CONVERT(bigint, -1)", "@end")
}

// fetchText finds the rows of a list by the clustered key. It skips locked rows, and then looks again for each message that it has not
// found, without waiting: error 1222 means that its row is locked. A row that is gone is neither found nor locked. XACT_ABORT is off for
// TRY.
func fetchText(given, locked string) string {
	return readOpen + `DECLARE @asked TABLE (id binary(16) NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @locked TABLE (id binary(16) NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @id binary(16);
IF @walks = 1
BEGIN
    INSERT INTO @rows ` + rowColumns + `
    SELECT ` + rowValues + `,
           ` + given + `, 0, ` + locked + `
    ` + fromIDs + `INNER JOIN {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id
    WHERE EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = q.slot)
    ` + fromListOptions + `;
    SET LOCK_TIMEOUT 0;
~SET XACT_ABORT OFF;
    SET @id = ` + nextMissing + `
    WHILE @id IS NOT NULL
    BEGIN
        BEGIN TRY
            INSERT INTO @rows ` + rowColumns + `
            SELECT ` + rowValues + `,
                   ` + given + `, 0, ` + locked + `
            FROM {live} AS q WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK)
            WHERE q.id = @id AND EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = q.slot);
        END TRY
        BEGIN CATCH
            IF ERROR_NUMBER() <> 1222
                THROW;
            INSERT INTO @locked (id) VALUES (@id);
        END CATCH;
        INSERT INTO @asked (id) VALUES (@id);
        SET @id = ` + nextMissing + `
    END;
~SET XACT_ABORT ON;
    SET LOCK_TIMEOUT 50;
END;
SELECT l.id, ` + noAttempt + `CONVERT(bigint, 0) AS due_at, ` + noContents + `, CONVERT(bigint, 0) AS size, ` + strings.Replace(noPlace, "0 AS locked", "1 AS locked", 1) + `
FROM @locked AS l;
` + readClose("CONVERT(bigint, 0)", "CONVERT(bigint, 0)")
}

// nextMissing is the least id of the list that was not found and not yet looked for.
const nextMissing = `(
        SELECT MIN(a.id)
        ` + fromIDs + `WHERE NOT EXISTS (SELECT 1 FROM @rows AS r WHERE r.id = a.id) AND NOT EXISTS (SELECT 1 FROM @asked AS k WHERE k.id = a.id));
`

// heldKeysText reads the number of the last redrive last, as reads do.
const heldKeysText = session + `DECLARE @rows TABLE (seq bigint NOT NULL PRIMARY KEY CLUSTERED, slot smallint NOT NULL, order_key varbinary(200) NULL, held int NOT NULL);
INSERT INTO @rows (seq, slot, order_key, held)
SELECT a.o, a.slot, a.order_key, 0
FROM (
    SELECT x.i + y.i + 1 AS o,
           CONVERT(smallint, SUBSTRING(@slots, 2 * (x.i + y.i) + 1, 2)) AS slot,
           SUBSTRING(@key_bytes, CONVERT(int, SUBSTRING(@key_list, 5 * (x.i + y.i) + 1, 4)) + 1, CONVERT(int, SUBSTRING(@key_list, 5 * (x.i + y.i) + 5, 1))) AS order_key
    FROM ` + slotNumbers + `
    WHERE x.i + y.i < DATALENGTH(@key_list) / 5
) AS a
` + fromListOptions + `;
` + findHeld + `SELECT r.seq AS o, r.held, ` + redriven + ` AS redriven
FROM @rows AS r;
`

// readers has the texts of reads: of several slots, and of one.
type readers struct {
	read, refill                                              [2]string
	fetch, lookOrdered, heldKeys, markOrdered, releaseOrdered string
}

func newReaders(render func(string) string) readers {
	return readers{
		read:   [2]string{render(readText(false)), render(readText(true))},
		refill: [2]string{render(refillText(false)), render(refillText(true))},
		fetch:  render(fetchText("1", "0")), lookOrdered: render(fetchText("0", "2")),
		heldKeys:    render(heldKeysText),
		markOrdered: render(markOrderedText), releaseOrdered: render(releaseOrderedText),
	}
}

const readDeclaration = "@by binary(16), @list varbinary(max), @from bigint, @cursor bigint, @upto bigint, @n int, @behind int, @old bigint, @inline int, @key_list varbinary(max), @key_bytes varbinary(max)"

// only returns the place of the text for one slot, or for several.
func only(slots []sqlbatch.OwnedSlot) int {
	if len(slots) == 1 {
		return 1
	}
	return 0
}

// packOrderKeys is packKeys without duplicate keys.
func packOrderKeys(keys []string) (list, all []byte) {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	return packKeys(keys[:min(len(keys), sqlbatch.MostKeys)])
}

func (q *queue) Read(r sqlbatch.ReadParams) sqlbatch.Statement {
	list, keys := packOrderKeys(r.Keys)
	return q.orderedCall(q.read[only(r.Slots)], readDeclaration,
		sql.Named("by", r.Consumer[:]), sql.Named("list", packOwned(r.Slots)),
		sql.Named("from", r.From), sql.Named("cursor", r.Cursor), sql.Named("upto", r.Upto),
		sql.Named("n", int32(min(r.Rows, Dialect.Traits().ClaimRows))), sql.Named("behind", int32(min(r.Behind, sqlbatch.MostWalked))),
		sql.Named("old", r.Old), sql.Named("inline", int32(r.Inline)), sql.Named("key_list", list), sql.Named("key_bytes", keys))
}

func (q *queue) Refill(r sqlbatch.ReadParams) sqlbatch.Statement {
	list, keys := packOrderKeys(r.Keys)
	return q.orderedCall(q.refill[only(r.Slots)], strings.Replace(readDeclaration, "@cursor bigint, ", "", 1),
		sql.Named("by", r.Consumer[:]), sql.Named("list", packOwned(r.Slots)), sql.Named("from", r.From), sql.Named("upto", r.Upto),
		sql.Named("n", int32(min(r.Rows, Dialect.Traits().ClaimRows))), sql.Named("behind", int32(sqlbatch.MostWalked)),
		sql.Named("old", r.Old), sql.Named("inline", int32(r.Inline)), sql.Named("key_list", list), sql.Named("key_bytes", keys))
}

func (q *queue) Fetch(consumer [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte) sqlbatch.Statement {
	return q.byIDs(q.fetch, consumer, slots, ids)
}

func (q *queue) LookOrdered(consumer [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte) sqlbatch.Statement {
	return q.byIDs(q.lookOrdered, consumer, slots, ids)
}

func (q *queue) byIDs(text string, consumer [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte) sqlbatch.Statement {
	return q.orderedCall(text, "@by binary(16), @list varbinary(max), @ids varbinary(8000)",
		sql.Named("by", consumer[:]), sql.Named("list", packOwned(slots)), sql.Named("ids", packIDs(ids)))
}

func (q *queue) HeldKeys(slots []int, keys []string) sqlbatch.Statement {
	list, all := make([]byte, 0, keyBytes*len(keys)), []byte{}
	for _, k := range keys {
		list = append(binary.BigEndian.AppendUint32(list, uint32(len(all))), byte(len(k)))
		all = append(all, k...)
	}
	return q.orderedCall(q.heldKeys, "@slots varbinary(8000), @key_list varbinary(max), @key_bytes varbinary(max)",
		sql.Named("slots", packSlots(slots)), sql.Named("key_list", list), sql.Named("key_bytes", all))
}
