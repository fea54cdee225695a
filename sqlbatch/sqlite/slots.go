package sqlite

import (
	"github.com/chanq/chanq/sqlbatch"
)

// Statements for the owners of the slots of an ordered queue.

func packSlots(slots []int) []byte {
	list := make([]byte, 0, len(slots)*4+1)
	for _, slot := range slots {
		list = appendDigits(list, int64(slot), 4)
	}
	return orNone(list)
}

// orNone returns a list of one byte for an empty one, which the driver would bind as NULL.
func orNone(list []byte) []byte {
	if len(list) == 0 {
		return append(list, 0)
	}
	return list
}

const (
	alive  = `m.until > {now}`
	paused = `(SELECT paused FROM {queues} WHERE name = {name})`

	// slotList has the slots of a list of 4 digits each, which is ?2.
	slotList = `(WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 4 FROM n WHERE o + 4 < length(?2)) SELECT CAST(substr(?2, o, 4) AS INTEGER) FROM n WHERE length(?2) > 1)`
)

const slotsText = `SELECT s.slot, s.consumer, CASE WHEN s.consumer IS NOT NULL THEN coalesce(o.until - {now}, 0) END, s.fence,
  (SELECT count(*) FROM {consumers} AS m WHERE m.queue = {name} AND ` + alive + `)
FROM {slots} AS s
LEFT JOIN {consumers} AS o ON o.id = s.consumer
WHERE s.queue = {name}
ORDER BY s.slot`

func (q *queue) Slots() sqlbatch.Statement { return sqlbatch.Statement{Text: q.slots} }

const takeSlotsText = `UPDATE {slots} SET old = CASE WHEN consumer IS NULL THEN old ELSE ` + lastDrawn + ` END, consumer = ?1, fence = max(fence, {now} << 20) + ?3
WHERE queue = {name} AND slot IN ` + slotList + `
  AND EXISTS (SELECT 1 FROM {consumers} AS m WHERE m.id = ?1 AND ` + alive + `)
  AND (consumer IS NULL OR consumer = ?1 OR NOT EXISTS (SELECT 1 FROM {consumers} AS m WHERE m.id = consumer AND ` + alive + `))
RETURNING slot, fence, old`

func (q *queue) TakeSlots(consumer [16]byte, salt int64, slots []int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.takeSlots, Args: []any{consumer[:], packSlots(slots), salt}}
}

const giveSlotsText = `UPDATE {slots} SET consumer = NULL, old = CASE WHEN slot IN (SELECT p.slot FROM ` + ownedList + ` AS p WHERE p.doubt) THEN ` + lastDrawn + ` ELSE old END
WHERE queue = {name} AND consumer = ?1 AND (slot, fence) IN (SELECT slot, fence FROM ` + ownedList + `)
RETURNING slot, fence`

func (q *queue) GiveSlots(consumer [16]byte, slots []sqlbatch.OwnedSlot) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.giveSlots, Args: []any{consumer[:], packOwned(slots)}}
}

// slotStatsText reads the first ?1 rows of the queue.
const (
	slotTop       = ` FROM first AS f WHERE f.slot = s.slot AND f.order_key IS NOT NULL GROUP BY f.order_key ORDER BY count(*) DESC, f.order_key LIMIT 1)`
	slotStatsText = `WITH first AS MATERIALIZED (SELECT slot, order_key, due_at, lease_until, enqueued_at FROM {live} ORDER BY seq LIMIT ?1 + 0)
SELECT s.slot, (SELECT m.name FROM {consumers} AS m WHERE m.id = s.consumer),
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

const dropSlots = `DELETE FROM {slots} WHERE queue = {name}`
