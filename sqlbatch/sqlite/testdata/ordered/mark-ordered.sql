UPDATE "main"."chanq_orders" AS q
SET fence = iif(q.fence > 8999998900488372224, p.delivery, max(q.fence + 1, p.delivery)), attempts = min(q.attempts + 1, 2000000000),
  lapses = min(q.lapses + (q.leased_by IS NOT NULL AND q.leased_by <> ?2), 32767), leased_by = ?2,
  history = iif((q.leased_by IS NOT NULL AND q.leased_by <> ?2), substr(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) || ' ' || (0) || ' ' || coalesce(substr((SELECT m.name FROM "main"."chanq__consumers" AS m WHERE m.id = q.leased_by), 1, 60), '') || char(10) || coalesce(substr('the lease expired', 1, 300), '') || char(30) || coalesce(q.history, ''), 1, 2000), q.history)
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
  SELECT substr(?1, o, 16) AS id, CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence, CAST(substr(?3, (o - 1) / 35 * 19 + 1, 19) AS INTEGER) AS delivery FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence, lapses;
