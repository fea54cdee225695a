UPDATE "main"."chanq_orders" AS q
SET due_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + p.amount, lease_until = 0, fence = q.fence + 1, attempts = q.attempts - q.lapses - 1, lapses = 0, leased_by = NULL, last_error = coalesce(p.error, q.last_error), history = q.history
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 71 FROM n WHERE o + 71 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 35, 13) AS INTEGER) AS amount,
         CAST(substr(?1, o + 61, 10) AS INTEGER) AS took,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 48, 9) AS INTEGER), CAST(substr(?1, o + 57, 4) AS INTEGER)) AS TEXT), '') AS error
  FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence - 1;
