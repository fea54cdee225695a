package postgres

import (
	"github.com/chanq/chanq/sqlbatch"
)

// Statements for the owners of the slots of an ordered queue.

// slotsTableText: a row is written only when its slot changes its owner.
const slotsTableText = `CREATE TABLE IF NOT EXISTS {slots} (
  fence  bigint   NOT NULL DEFAULT 0,
  old    bigint   NOT NULL DEFAULT 0,
  consumer uuid,
  slot   smallint NOT NULL,
  queue  text COLLATE "C" NOT NULL,
  CONSTRAINT {slots pk} PRIMARY KEY (queue, slot)
) WITH (fillfactor = 50)`

const slotRowsText = `INSERT INTO {slots} (queue, slot) SELECT {name}, s FROM generate_series(0, {slot count} - 1) AS s ON CONFLICT DO NOTHING`

// slotsText reads the rows of the slots and of the consumers.
const slotsText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, (SELECT count(*) FROM {consumers} AS m WHERE m.queue = {name} AND m.until > {now}) AS consumers
)
SELECT s.slot, uuid_send(s.consumer) AS owner, CASE WHEN s.consumer IS NOT NULL THEN coalesce(m.until - t.now, 0) END AS "left", s.fence, t.consumers
FROM t
CROSS JOIN {slots} AS s
LEFT JOIN {consumers} AS m ON m.id = s.consumer
WHERE s.queue = {name}
ORDER BY s.slot`

func (q *queue) Slots() sqlbatch.Statement { return sqlbatch.Statement{Text: q.slots} }

// takeSlotsText takes a slot only if it has not changed since it was read: a row that another consumer has changed has
// another fence, and a row that it is changing is skipped. It takes no lock on rows of consumers, which others might
// have locked. It sees the heartbeats that were committed before its time, {now}, which is earlier than its snapshot. A
// membership that has ended by then is not prolonged by a later one: see the Membership of a consumer.
var takeSlotsText = `WITH wanted AS MATERIALIZED (
  SELECT s.slot, s.fence
  FROM unnest($2::smallint[]) AS a (slot)
  JOIN {slots} AS s ON s.queue = {name} AND s.slot = a.slot
  WHERE EXISTS (SELECT 1 FROM {consumers} AS m WHERE m.id = $1::uuid AND m.until > {now})
    AND (s.consumer IS NULL OR s.consumer = $1::uuid OR NOT EXISTS (SELECT 1 FROM {consumers} AS m WHERE m.id = s.consumer AND m.until > {now}))
),
free AS MATERIALIZED (
  SELECT s.slot
  FROM wanted AS w
  JOIN {slots} AS s ON s.queue = {name} AND s.slot = w.slot AND s.fence = w.fence
  FOR UPDATE OF s SKIP LOCKED
)
UPDATE {slots} AS s
SET consumer = $1::uuid, fence = greatest(s.fence, {now} << {fence bits}) + $3::bigint, old = CASE WHEN s.consumer IS NULL THEN s.old ELSE ` + lastDrawn + ` END
FROM free AS f
WHERE s.queue = {name} AND s.slot = f.slot
RETURNING s.slot, s.fence, s.old`

func (q *queue) TakeSlots(consumer [16]byte, salt int64, slots []int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.takeSlots, Args: []any{hexID(consumer), packSlots(slots), salt}}
}

const giveSlotsText = `UPDATE {slots} AS s
SET consumer = NULL, old = CASE WHEN a.doubt <> 0 THEN ` + lastDrawn + ` ELSE s.old END
FROM unnest($2::smallint[], $3::bigint[], $4::integer[]) AS a (slot, fence, doubt)
WHERE s.queue = {name} AND s.slot = a.slot AND s.fence = a.fence AND s.consumer = $1::uuid
RETURNING s.slot, s.fence`

func (q *queue) GiveSlots(consumer [16]byte, list []sqlbatch.OwnedSlot) sqlbatch.Statement {
	slots, fences := packOwned(list)
	doubts := newArray(len(list), 2)
	for _, own := range list {
		doubts.number(flag(own.Doubt))
	}
	return sqlbatch.Statement{Text: q.giveSlots, Args: []any{hexID(consumer), slots, fences, doubts.literal()}}
}

// slotStatsText reads the first $1 rows of the queue.
var slotStatsText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
),
first AS MATERIALIZED (
  SELECT e.* FROM (
    SELECT q.slot, q.order_key, q.due_at, q.lease_until, q.enqueued_at FROM {live} AS q
    WHERE ` + behindNumber("0::bigint") + ` ORDER BY q.seq LIMIT 100000) AS e
  LIMIT (SELECT n FROM t)
),
k AS MATERIALIZED (
  SELECT e.slot, e.order_key, count(*) AS messages, count(*) FILTER (WHERE e.due_at > (SELECT now FROM t) OR e.lease_until > (SELECT now FROM t)) AS waiting, min(e.enqueued_at) AS first
  FROM first AS e
  GROUP BY e.slot, e.order_key
)
SELECT s.slot, (SELECT convert_to(m.name, {encoding}) FROM {consumers} AS m WHERE m.id = s.consumer) AS owner,
       r.messages, r.waiting, r.oldest, convert_to(r.top_key, {encoding}) AS top_key, r.top
FROM {slots} AS s
CROSS JOIN LATERAL (
  SELECT coalesce(sum(k.messages), 0)::bigint AS messages, coalesce(sum(k.waiting), 0)::bigint AS waiting, (SELECT now FROM t) - min(k.first) AS oldest,
         (array_agg(k.order_key ORDER BY k.messages DESC, k.order_key) FILTER (WHERE k.order_key IS NOT NULL))[1] AS top_key,
         coalesce(max(k.messages) FILTER (WHERE k.order_key IS NOT NULL), 0) AS top
  FROM k
  WHERE k.slot = s.slot) AS r
WHERE s.queue = {name}
ORDER BY s.slot`

func (q *queue) SlotStats(limit int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.slotStats, Args: []any{int64(limit)}}
}

func packSlots(slots []int) string {
	list := newArray(len(slots), 4)
	for _, slot := range slots {
		list.number(int64(slot))
	}
	return list.literal()
}
