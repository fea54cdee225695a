UPDATE "main"."chanq_orders" AS q SET due_at = iif(lapses BETWEEN 1 AND ?4 - 2, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + (random() & 9007199254740991) % CASE WHEN lapses = 1 THEN 60000 WHEN lapses = 2 THEN 120000 WHEN lapses = 3 THEN 240000 WHEN lapses = 4 THEN 480000 WHEN lapses = 5 THEN 960000 WHEN lapses = 6 THEN 1920000 ELSE 3600000 END, due_at),
  lease_until = 0, fence = iif(fence > 8999998900488372224, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) << 20, fence + 1), lapses = min(lapses + 1, 32767), leased_by = NULL,
  history = substr(min(q.lease_until, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) || ' ' || (min(q.lease_until, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) - (q.fence >> 20)) || ' ' || coalesce(substr((SELECT m.name FROM "main"."chanq__consumers" AS m WHERE m.id = q.leased_by), 1, 60), '') || char(10) || coalesce(substr('the lease expired', 1, 300), '') || char(30) || coalesce(q.history, ''), 1, 2000)
WHERE rowid IN (SELECT rowid FROM (
  SELECT rowid, leased_by, lease_until FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due"
  WHERE priority = ?1 AND (due_at, id) >= (?2, ?3) AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 2500)
  WHERE leased_by IS NOT NULL AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))
RETURNING id, priority, due_at;
