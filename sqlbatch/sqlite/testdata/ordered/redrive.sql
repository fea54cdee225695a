UPDATE "main"."chanq_orders__dead" SET ended_at = -1 - ended_at WHERE rowid IN (SELECT rowid FROM "main"."chanq_orders__dead" AS d WHERE (ended_at, id) > (?2, ?3) AND ended_at < ?4
  AND NOT EXISTS (SELECT 1 FROM "main"."chanq_orders" AS q WHERE q.id = d.id)
  AND NOT EXISTS (SELECT 1 FROM "main"."chanq_orders" AS q WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM "main"."chanq_orders__dead" AS e WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id AND e.ended_at < ?4)
ORDER BY ended_at, id LIMIT ?1 + 0);

INSERT INTO "main"."chanq_orders" (id, priority, due_at, enqueued_at, fence, dedup_key, type, last_error, history, headers, body, slot, seq, order_key)
SELECT id, priority, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), enqueued_at, fence + 1, dedup_key, type, last_error, history, headers, body, slot, seq, order_key FROM "main"."chanq_orders__dead" WHERE ended_at < 0;

UPDATE "main"."chanq__queues" SET redriven = redriven + 1 WHERE name = 'orders' AND EXISTS (SELECT 1 FROM "main"."chanq_orders__dead" WHERE ended_at < 0);

DELETE FROM "main"."chanq_orders__dead" WHERE ended_at < 0 RETURNING id, -1 - ended_at;
