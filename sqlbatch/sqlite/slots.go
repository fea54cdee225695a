package sqlite

import (
	"github.com/chanq/chanq/sqlbatch"
)

// The statements about who owns the slots of an ordered queue.

// A list of parts: record = slot 4, fence 19, from 19, limit 5.
const (
	partSize = 4 + 19 + 19 + 5
	maxPart  = 99_999

	partList = `(
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 47 FROM n WHERE o + 47 < length(?1))
  SELECT o, CAST(substr(?1, o, 4) AS INTEGER) AS slot, CAST(substr(?1, o + 4, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 23, 19) AS INTEGER) AS seq, CAST(substr(?1, o + 42, 5) AS INTEGER) AS most
  FROM n WHERE length(?1) > 1)`
)

func packParts(parts []sqlbatch.SlotPart) []byte {
	list := make([]byte, 0, len(parts)*partSize+1)
	for _, p := range parts {
		list = appendDigits(list, int64(p.Slot), 4)
		list = appendDigits(list, p.Fence, 19)
		list = appendDigits(list, p.From, 19)
		list = appendDigits(list, int64(min(p.Limit, maxPart)), 5)
	}
	return orNone(list)
}

func packSlots(slots []int) []byte {
	list := make([]byte, 0, len(slots)*4+1)
	for _, slot := range slots {
		list = appendDigits(list, int64(slot), 4)
	}
	return orNone(list)
}

// orNone is a list of one byte for an empty one, which the driver would bind as NULL.
func orNone(list []byte) []byte {
	if len(list) == 0 {
		return append(list, 0)
	}
	return list
}

// mostOf is the greatest limit: a LIMIT cannot be another for each slot.
func mostOf(parts []sqlbatch.SlotPart) int64 {
	most := 0
	for _, p := range parts {
		most = max(most, p.Limit)
	}
	return int64(most)
}

const (
	alive  = `m.until > {now}`
	paused = `(SELECT paused FROM {queues} WHERE name = {name})`

	// The slots of a list of 4 digits each, which is ?2.
	slotList = `(WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 4 FROM n WHERE o + 4 < length(?2)) SELECT CAST(substr(?2, o, 4) AS INTEGER) FROM n WHERE length(?2) > 1)`
)

// slotsText probes, for each slot of which a part is given, for what is behind it and
// nobody leases. What is leased there is no more than members hold.
const slotsText = `SELECT s.slot, s.member, CASE WHEN s.member IS NOT NULL THEN coalesce(o.until - {now}, 0) END, s.fence,
  (SELECT count(*) FROM {members} AS m WHERE m.queue = {name} AND ` + alive + `),
  CASE WHEN p.slot IS NOT NULL AND NOT ` + paused + ` THEN (
    SELECT min(due_at) FROM (
      SELECT q.due_at FROM {live} AS q INDEXED BY {due_ix_unqualified}
      WHERE q.slot = p.slot AND q.seq > p.seq AND p.most > 0 AND q.lease_until <= {now} ORDER BY q.seq LIMIT ?2 + 0)) - {now} END
FROM {slots} AS s
LEFT JOIN {members} AS o ON o.id = s.member
LEFT JOIN ` + partList + ` AS p ON p.slot = s.slot
WHERE s.queue = {name}
ORDER BY s.slot`

func (q *queue) Slots(parts []sqlbatch.SlotPart) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.slots, Args: []any{packParts(parts), mostOf(parts)}}
}

const takeSlotsText = `UPDATE {slots} SET old = CASE WHEN member IS NULL THEN old ELSE ` + lastDrawn + ` END, member = ?1, fence = max(fence, {now} << 20) + ?3
WHERE queue = {name} AND slot IN ` + slotList + `
  AND EXISTS (SELECT 1 FROM {members} AS m WHERE m.id = ?1 AND ` + alive + `)
  AND (member IS NULL OR member = ?1 OR NOT EXISTS (SELECT 1 FROM {members} AS m WHERE m.id = member AND ` + alive + `))
RETURNING slot, fence, old`

func (q *queue) TakeSlots(member [16]byte, salt int64, slots []int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.takeSlots, Args: []any{member[:], packSlots(slots), salt}}
}

const giveSlotsText = `UPDATE {slots} SET member = NULL, old = CASE WHEN slot IN (SELECT p.slot FROM ` + ownedList + ` AS p WHERE p.doubt) THEN ` + lastDrawn + ` ELSE old END
WHERE queue = {name} AND member = ?1 AND (slot, fence) IN (SELECT slot, fence FROM ` + ownedList + `)
RETURNING slot, fence`

func (q *queue) GiveSlots(member [16]byte, slots []sqlbatch.OwnedSlot) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.giveSlots, Args: []any{member[:], packOwned(slots)}}
}

// slotStatsText reads the first ?1 rows of the queue.
const (
	slotTop       = ` FROM first AS f WHERE f.slot = s.slot AND f.order_key IS NOT NULL GROUP BY f.order_key ORDER BY count(*) DESC, f.order_key LIMIT 1)`
	slotStatsText = `WITH first AS MATERIALIZED (SELECT slot, order_key, due_at, lease_until, enqueued_at FROM {live} ORDER BY seq LIMIT ?1 + 0)
SELECT s.slot, (SELECT m.name FROM {members} AS m WHERE m.id = s.member),
  (SELECT count(*) FROM first AS f WHERE f.slot = s.slot),
  (SELECT count(*) FROM first AS f WHERE f.slot = s.slot AND (f.due_at > {now} OR f.lease_until > {now})),
  (SELECT {now} - min(f.enqueued_at) FROM first AS f WHERE f.slot = s.slot),
  (SELECT f.order_key` + slotTop + `,
  coalesce((SELECT count(*)` + slotTop + `, 0)
FROM {slots} AS s WHERE s.queue = {name} ORDER BY s.slot`
)

func (q *queue) SlotStats(limit int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.slotStats, Args: []any{int64(limit)}}
}

// heldText goes from key to key: one probe of the index each, however many of its messages
// are dead.
const heldText = `WITH RECURSIVE k(slot, n, order_key) AS (
  SELECT a.slot, 1, (SELECT min(d.order_key) FROM {dead} AS d WHERE d.slot = a.slot AND d.order_key IS NOT NULL)
  FROM (SELECT slot FROM {slots} WHERE queue = {name} AND slot IN ` + slotList + `) AS a
  UNION ALL
  SELECT k.slot, k.n + 1, (SELECT min(d.order_key) FROM {dead} AS d WHERE d.slot = k.slot AND d.order_key > k.order_key)
  FROM k WHERE k.n < ?1 AND k.order_key IS NOT NULL
)
SELECT slot, order_key FROM k WHERE n <= ?1 AND order_key IS NOT NULL`

func (q *queue) Held(slots []int, limit int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.held, Args: []any{int64(limit), packSlots(slots)}}
}

const dropSlots = `DELETE FROM {slots} WHERE queue = {name}`
