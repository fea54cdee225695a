SELECT id, dedup_key, fence, (leased_by IS NOT NULL AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) AS leased
FROM "main"."chanq_orders"
WHERE id IN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?1))
             SELECT substr(?1, o, 16) FROM n)
   OR dedup_key IN (SELECT value FROM json_each(?2));
