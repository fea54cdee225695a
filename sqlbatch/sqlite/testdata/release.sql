UPDATE "main"."chanq_orders" SET lease_until = 0, fence = fence + 1, attempts = attempts - 1, leased_by = NULL WHERE rowid IN (SELECT q.rowid FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
    SELECT o FROM n) AS n
  CROSS JOIN "main"."chanq_orders" AS q ON q.id = substr(?1, o, 16) AND q.fence = CAST(substr(?1, o + 16, 19) AS INTEGER))
RETURNING id, fence - 1;
