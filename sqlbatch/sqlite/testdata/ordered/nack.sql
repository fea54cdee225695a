UPDATE "main"."chanq_orders" AS q
SET due_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + p.amount, lease_until = 0, fence = iif(q.fence > 8999998900488372224, p.delivery, max(q.fence, p.delivery)) + 1, attempts = min(q.attempts + (q.leased_by IS NULL), 2000000000) - q.lapses, lapses = 0, leased_by = NULL, last_error = coalesce(p.error, q.last_error), history = substr(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) || ' ' || (p.took) || ' ' || coalesce(substr((SELECT m.name FROM "main"."chanq__slots" AS s JOIN "main"."chanq__consumers" AS m ON m.id = coalesce(q.leased_by, s.consumer) WHERE s.queue = 'orders' AND s.slot = q.slot), 1, 60), '') || char(10) || coalesce(substr(p.error, 1, 300), '') || char(30) || coalesce(q.history, ''), 1, 2000)
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 71 FROM n WHERE o + 71 < length(?1))
  SELECT substr(?1, o, 16) AS id, CAST(substr(?3, (o - 1) / 71 * 19 + 1, 19) AS INTEGER) AS delivery,
         CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 35, 13) AS INTEGER) AS amount,
         CAST(substr(?1, o + 61, 10) AS INTEGER) AS took,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 48, 9) AS INTEGER), CAST(substr(?1, o + 57, 4) AS INTEGER)) AS TEXT), '') AS error
  FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, json_extract(?4, '$.' || hex(id)) AS fence;
