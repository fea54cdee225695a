INSERT OR REPLACE INTO "main"."chanq_orders__dead" (id, priority, enqueued_at, ended_at, cause, fingerprint, noticed_at, fence, attempts, dedup_key, type, last_error, history, headers, body)
SELECT q.id, q.priority, q.enqueued_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), p.amount >> 1, p.fingerprint, 0, q.fence + 1, q.attempts - (p.amount & 1), q.dedup_key, q.type, coalesce(p.error, q.last_error), iif(p.amount & 1, q.history, substr(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) || ' ' || (p.took) || ' ' || coalesce(substr((SELECT m.name FROM "main"."chanq__consumers" AS m WHERE m.id = q.leased_by), 1, 60), '') || char(10) || coalesce(substr(p.error, 1, 300), '') || char(30) || coalesce(q.history, ''), 1, 2000)), q.headers, q.body
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 71 FROM n WHERE o + 71 < length(?1))
  SELECT substr(?1, o, 16) AS id, nullif(CAST(substr(?3, (o - 1) / 71 * 19 + 1, 19) AS INTEGER), 0) AS fingerprint,
         CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 35, 13) AS INTEGER) AS amount,
         CAST(substr(?1, o + 61, 10) AS INTEGER) AS took,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 48, 9) AS INTEGER), CAST(substr(?1, o + 57, 4) AS INTEGER)) AS TEXT), '') AS error
  FROM n) AS p CROSS JOIN "main"."chanq_orders" AS q ON q.id = p.id AND q.fence = p.fence;

DELETE FROM "main"."chanq_orders" WHERE rowid IN (
  SELECT q.rowid FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 71 FROM n WHERE o + 71 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 35, 13) AS INTEGER) AS amount,
         CAST(substr(?1, o + 61, 10) AS INTEGER) AS took,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 48, 9) AS INTEGER), CAST(substr(?1, o + 57, 4) AS INTEGER)) AS TEXT), '') AS error
  FROM n) AS p CROSS JOIN "main"."chanq_orders" AS q ON q.id = p.id AND q.fence = p.fence)
RETURNING id, fence;
