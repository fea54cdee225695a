INSERT OR REPLACE INTO "main"."chanq_orders__done" (id, priority, enqueued_at, ended_at, outcome, fence, attempts, dedup_key, type, last_error, history, headers, body, slot, seq, order_key)
SELECT id, priority, enqueued_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 1, fence, min(attempts + (leased_by IS NULL), 2000000000), dedup_key, type, last_error, history, headers, body, slot, seq, order_key
FROM "main"."chanq_orders" WHERE rowid IN (SELECT q.rowid FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
    SELECT o FROM n) AS n
  CROSS JOIN "main"."chanq_orders" AS q ON q.id = substr(?1, o, 16) AND q.fence = CAST(substr(?1, o + 16, 19) AS INTEGER));

DELETE FROM "main"."chanq_orders" WHERE rowid IN (SELECT q.rowid FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
    SELECT o FROM n) AS n
  CROSS JOIN "main"."chanq_orders" AS q ON q.id = substr(?1, o, 16) AND q.fence = CAST(substr(?1, o + 16, 19) AS INTEGER))
RETURNING id, fence;
