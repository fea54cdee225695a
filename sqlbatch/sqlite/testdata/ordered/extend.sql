UPDATE "main"."chanq_orders" SET lease_until = min(max(lease_until, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + ?2), coalesce((SELECT m.until FROM "main"."chanq__consumers" AS m WHERE m.id = coalesce(leased_by, ?3)), lease_until)),
  attempts = min(attempts + (leased_by IS NULL), 2000000000), leased_by = coalesce(leased_by, ?3)
WHERE rowid IN (SELECT q.rowid FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
    SELECT o FROM n) AS n
  CROSS JOIN "main"."chanq_orders" AS q ON q.id = substr(?1, o, 16) AND q.fence = CAST(substr(?1, o + 16, 19) AS INTEGER))
RETURNING id, fence;
