UPDATE "main"."chanq_orders" AS q SET lease_until = 0, fence = iif(q.fence > 8999998900488372224, p.delivery, max(q.fence, p.delivery)) + 1, attempts = q.attempts + (q.leased_by IS NULL) - 1, leased_by = NULL
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
  SELECT substr(?1, o, 16) AS id, CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence, CAST(substr(?2, (o - 1) / 35 * 19 + 1, 19) AS INTEGER) AS delivery FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, json_extract(?3, '$.' || hex(id)) AS fence;
