UPDATE "main"."chanq__slots" SET old = CASE WHEN consumer IS NULL THEN old ELSE coalesce((SELECT z.seq FROM "main"."sqlite_sequence" AS z WHERE z.name = 'chanq_orders'), 0) END, consumer = ?1, fence = max(fence, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) << 20) + ?3
WHERE queue = 'orders' AND slot IN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 4 FROM n WHERE o + 4 < length(?2)) SELECT CAST(substr(?2, o, 4) AS INTEGER) FROM n WHERE length(?2) > 1)
  AND EXISTS (SELECT 1 FROM "main"."chanq__consumers" AS m WHERE m.id = ?1 AND m.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))
  AND (consumer IS NULL OR consumer = ?1 OR NOT EXISTS (SELECT 1 FROM "main"."chanq__consumers" AS m WHERE m.id = consumer AND m.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)))
RETURNING slot, fence, old;
