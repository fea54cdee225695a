UPDATE "main"."chanq_orders" AS q
SET visible_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + p.delay, fence = q.fence + 1, leased_by = NULL, last_error = coalesce(p.error, q.last_error)
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 52 FROM n WHERE o + 52 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 10) AS INTEGER) AS fence,
         CAST(substr(?1, o + 26, 13) AS INTEGER) AS delay,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 39, 9) AS INTEGER), CAST(substr(?1, o + 48, 4) AS INTEGER)) AS TEXT), '') AS error
  FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence - 1;
