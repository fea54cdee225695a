package sqlserver

import (
	"database/sql"
	"encoding/binary"

	"github.com/chanq/chanq/sqlbatch"
)

// Statements for the owners of the slots of an ordered queue, and their tables.

// slotsTableText: a row is written only when its slot changes its owner.
const slotsTableText = `IF OBJECT_ID({'slots'}, N'U') IS NULL
    CREATE TABLE {slots} (
        queue varchar(40) NOT NULL,
        slot smallint NOT NULL,
        consumer binary(16) NULL,
        fence bigint NOT NULL,
        old bigint NOT NULL,
        CONSTRAINT {slots pk} PRIMARY KEY CLUSTERED (queue, slot) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
`

const slotRowsText = `INSERT INTO {slots} WITH (ROWLOCK) (queue, slot, fence, old)
SELECT {name}, x.i + y.i, 0, 0
FROM ` + slotNumbers + `
WHERE x.i + y.i < {slot count} AND NOT EXISTS (SELECT 1 FROM {slots} AS s WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE s.queue = {name} AND s.slot = x.i + y.i);
`

// numbersText: a number is written before it is drawn, so none is drawn again after a crash, and current_value is the last number drawn. If
// none was drawn yet, it is the first that will be: firstNumberText draws that number and does not use it.
const (
	numbersText = `IF OBJECT_ID({'numbers'}, N'SO') IS NULL
    CREATE SEQUENCE {numbers} AS bigint START WITH 0 INCREMENT BY 1 MINVALUE 0 MAXVALUE 8796093022207 NO CACHE;
`
	firstNumberText = `DECLARE @drawn bigint = ` + drawn + `;
IF @drawn = 0
    SET @drawn = NEXT VALUE FOR {numbers};
`
	drawn = `(SELECT CONVERT(bigint, n.current_value) FROM sys.sequences AS n WHERE n.object_id = OBJECT_ID({'numbers'}, N'SO'))`
)

// slotNumbers counts 0 to 1023, as numbers does.
const slotNumbers = `(VALUES (0), (32), (64), (96), (128), (160), (192), (224), (256), (288), (320), (352), (384), (416), (448), (480),
                 (512), (544), (576), (608), (640), (672), (704), (736), (768), (800), (832), (864), (896), (928), (960), (992)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
                       (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31)) AS y (i)`

// fromSlots selects the slots of @slots.
const fromSlots = `FROM (
    SELECT CONVERT(smallint, SUBSTRING(@slots, 2 * (x.i + y.i) + 1, 2)) AS slot
    FROM ` + slotNumbers + `
    WHERE x.i + y.i < DATALENGTH(@slots) / 2
) AS a
`

func packSlots(slots []int) []byte {
	slots = slots[:min(len(slots), sqlbatch.MaxSlots)]
	b := make([]byte, 0, 2*len(slots))
	for _, slot := range slots {
		b = binary.BigEndian.AppendUint16(b, uint16(slot))
	}
	return b
}

// slotsText never waits for a lock, so that a locked row keeps no consumer from its other work. A row that it reads while it is being
// written might be rolled back: taking slots checks again, under locks.
const slotsText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @consumers bigint = (SELECT COUNT_BIG(*) FROM {consumers} AS m WITH (READUNCOMMITTED) WHERE m.queue = {name} AND m.until > @now);
SELECT s.slot, s.consumer AS owner,
       CASE WHEN s.consumer IS NULL THEN NULL WHEN g.until IS NULL THEN CONVERT(bigint, 0) ELSE DATEDIFF_BIG(millisecond, @now, g.until) END AS left_ms,
       s.fence, @consumers AS consumers
FROM {slots} AS s WITH (READUNCOMMITTED)
CROSS APPLY (SELECT MIN(m.until) AS until FROM {consumers} AS m WITH (READUNCOMMITTED) WHERE m.id = s.consumer) AS g
WHERE s.queue = {name}
ORDER BY s.slot
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

func (q *queue) Slots() sqlbatch.Statement { return q.orderedCall(q.slots, "") }

// takeSlotsText skips slots that another consumer takes at the same moment, or whose rows a reader has locked (XLOCK). It takes no lock on
// rows of consumers, which others might have locked. Only heartbeats change them, and a heartbeat that it does not see is committed after
// the membership has ended: it does not prolong it (see the Membership of a consumer). One that it sees might be rolled back: the slot is
// then free at the next look.
const takeSlotsText = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @drawn bigint = (` + drawn + ` + 1) * 1048576 - 1;
UPDATE s
SET consumer = @by,
    fence = CASE WHEN s.fence > @mark THEN s.fence ELSE @mark END + @salt,
    old = CASE WHEN s.consumer IS NULL THEN s.old ELSE @drawn END
OUTPUT inserted.slot, inserted.fence, inserted.old
` + fromSlots + `INNER JOIN {slots} AS s WITH (XLOCK, READPAST, ROWLOCK, INDEX ({slots pk}), FORCESEEK) ON s.queue = {name} AND s.slot = a.slot
WHERE EXISTS (SELECT 1 FROM {consumers} AS m WITH (READUNCOMMITTED) WHERE m.id = @by AND m.until > @now)
  AND (s.consumer IS NULL OR s.consumer = @by
       OR NOT EXISTS (SELECT 1 FROM {consumers} AS m WITH (READUNCOMMITTED, INDEX ({consumers pk}), FORCESEEK) WHERE m.id = s.consumer AND m.until > @now))
` + fromListOptions + `;
`

func (q *queue) TakeSlots(consumer [16]byte, salt int64, slots []int) sqlbatch.Statement {
	return q.orderedCall(q.takeSlots, "@slots varbinary(8000), @by binary(16), @salt bigint", sql.Named("slots", packSlots(slots)), sql.Named("by", consumer[:]), sql.Named("salt", salt))
}

const giveSlotsText = settling + `DECLARE @drawn bigint = (` + drawn + ` + 1) * 1048576 - 1;
UPDATE s
SET consumer = NULL,
    old = CASE WHEN a.doubt > 0 THEN @drawn ELSE s.old END
OUTPUT inserted.slot, inserted.fence
` + fromOwned + `INNER JOIN {slots} AS s WITH (UPDLOCK, ROWLOCK, INDEX ({slots pk}), FORCESEEK) ON s.queue = {name} AND s.slot = a.slot
WHERE s.fence = a.fence AND s.consumer = @by
` + fromListOptions + `;
`

func (q *queue) GiveSlots(consumer [16]byte, slots []sqlbatch.OwnedSlot) sqlbatch.Statement {
	return q.orderedCall(q.giveSlots, "@list varbinary(max), @by binary(16)", sql.Named("list", packOwned(slots)), sql.Named("by", consumer[:]))
}

// slotStatsText reads the first @limit rows of the queue, with hints as in statsText. The messages of a key are adjacent in @first, so
// counting them is one seek per key.
const slotStatsText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @first TABLE (slot smallint NOT NULL, order_key varbinary(200) NOT NULL, seq bigint NOT NULL, id binary(16) NOT NULL,
    waits int NULL, enqueued_at datetime2(3) NOT NULL, PRIMARY KEY CLUSTERED (slot, order_key, seq, id));
DECLARE @keys TABLE (slot smallint NOT NULL, order_key varbinary(200) NOT NULL, n bigint NOT NULL, PRIMARY KEY CLUSTERED (slot, order_key));
INSERT INTO @first (slot, order_key, seq, id, waits, enqueued_at)
SELECT f.slot, CASE WHEN f.order_key IS NULL THEN 0x ELSE f.order_key END, f.seq, f.id, CASE WHEN f.due_at > @now OR f.lease_until > @now THEN 1 END, f.enqueued_at
FROM (
    SELECT TOP (@limit) q.slot, q.order_key, q.seq, q.id, q.due_at, q.lease_until, q.enqueued_at
    FROM ` + lookedBySeq + `
    WHERE q.seq > 0
    ORDER BY q.seq) AS f
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
INSERT INTO @keys (slot, order_key, n)
SELECT r.slot, r.order_key, c.n
FROM @first AS r
CROSS APPLY (SELECT COUNT_BIG(*) AS n FROM @first AS e WHERE e.slot = r.slot AND e.order_key = r.order_key) AS c
WHERE r.order_key > 0x AND NOT EXISTS (
    SELECT 1 FROM @first AS b
    WHERE b.slot = r.slot AND b.order_key = r.order_key AND (b.seq < r.seq OR b.seq = r.seq AND b.id < r.id));
SELECT s.slot, (SELECT m.name FROM {consumers} AS m WITH (READPAST, READCOMMITTEDLOCK) WHERE m.id = s.consumer) AS owner,
       c.messages, c.waiting, DATEDIFF_BIG(millisecond, c.enqueued_at, @now) AS oldest_ms,
       (SELECT TOP (1) k.order_key FROM @keys AS k WHERE k.slot = s.slot ORDER BY k.n DESC, k.order_key) AS top_key,
       CASE WHEN t.n IS NULL THEN CONVERT(bigint, 0) ELSE t.n END AS top_messages
FROM {slots} AS s
CROSS APPLY (SELECT COUNT_BIG(*) AS messages, COUNT_BIG(r.waits) AS waiting, MIN(r.enqueued_at) AS enqueued_at FROM @first AS r WHERE r.slot = s.slot) AS c
CROSS APPLY (SELECT MAX(k.n) AS n FROM @keys AS k WHERE k.slot = s.slot) AS t
WHERE s.queue = {name}
ORDER BY s.slot;
`

func (q *queue) SlotStats(limit int) sqlbatch.Statement {
	return q.orderedCall(q.slotStats, "@limit bigint", sql.Named("limit", int64(limit)))
}

// orderedCall is a call of a statement that plain queues do not have.
func (q *queue) orderedCall(text, declaration string, args ...any) sqlbatch.Statement {
	if text == "" {
		return sqlbatch.Statement{}
	}
	return call(text, declaration, args...)
}

const dropSlots = `DELETE s
FROM {slots} AS s WITH (ROWLOCK)
WHERE s.queue = {name};
`
