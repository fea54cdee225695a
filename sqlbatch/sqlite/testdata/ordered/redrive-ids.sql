UPDATE "main"."chanq_orders__dead" SET ended_at = -1 - ended_at WHERE rowid IN (SELECT rowid FROM "main"."chanq_orders__dead" AS d WHERE id IN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?1)) SELECT substr(?1, o, 16) FROM n) AND NOT EXISTS (SELECT 1 FROM "main"."chanq_orders" AS q WHERE q.id = d.id)
  AND NOT EXISTS (SELECT 1 FROM "main"."chanq_orders" AS q WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM "main"."chanq_orders__dead" AS e WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id AND e.id IN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?1)) SELECT substr(?1, o, 16) FROM n)));

INSERT INTO "main"."chanq_orders" (id, priority, due_at, enqueued_at, fence, dedup_key, type, last_error, history, headers, body, slot, seq, order_key)
SELECT id, priority, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), enqueued_at, fence + 1, dedup_key, type, last_error, history, headers, body, slot, seq, order_key FROM "main"."chanq_orders__dead" WHERE ended_at < 0;

UPDATE "main"."chanq__queues" SET redriven = redriven + 1 WHERE name = 'orders' AND EXISTS (SELECT 1 FROM "main"."chanq_orders__dead" WHERE ended_at < 0);

DELETE FROM "main"."chanq_orders__dead" WHERE ended_at < 0 RETURNING id, -1 - ended_at;
