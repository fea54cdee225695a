UPDATE "main"."chanq_orders" AS q
SET fence = iif(q.fence > 8999998900488372224, p.delivery, max(q.fence, p.delivery)) + 1,
  attempts = min(CASE WHEN ?4 THEN q.attempts + (q.leased_by IS NULL) WHEN q.leased_by = ?2 THEN q.attempts - 1 ELSE q.attempts END, 2000000000),
  lapses = min(q.lapses + ?4, 32767), lease_until = iif(NOT ?4 AND (q.leased_by IS NOT NULL AND q.leased_by <> ?2), q.lease_until, 0), leased_by = iif(NOT ?4 AND (q.leased_by IS NOT NULL AND q.leased_by <> ?2), q.leased_by, NULL),
  history = iif(?4, substr(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) || ' ' || (0) || ' ' || coalesce(substr((SELECT m.name FROM "main"."chanq__consumers" AS m WHERE m.id = ?2), 1, 60), '') || char(10) || coalesce(substr('the lease expired', 1, 300), '') || char(30) || coalesce(q.history, ''), 1, 2000), q.history)
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
  SELECT substr(?1, o, 16) AS id, CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence, CAST(substr(?3, (o - 1) / 35 * 19 + 1, 19) AS INTEGER) AS delivery FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence, min(lapses + (leased_by IS NOT NULL), 32767);
