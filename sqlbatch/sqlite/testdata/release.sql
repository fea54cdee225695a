UPDATE "main"."chanq_orders" AS q
SET visible_at = p.due, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 48 FROM n WHERE o + 48 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 35, 13) AS INTEGER) AS due
  FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence - 1;
