UPDATE "main"."chanq_orders" AS q
SET visible_at = p.due, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 39 FROM n WHERE o + 39 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 10) AS INTEGER) AS fence,
         CAST(substr(?1, o + 26, 13) AS INTEGER) AS due
  FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence - 1;
