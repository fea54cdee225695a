UPDATE "main"."chanq_slots" SET member = NULL
WHERE queue = 'orders' AND member = ?2 AND (slot, fence) IN (SELECT slot, fence FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 47 FROM n WHERE o + 47 < length(?1))
  SELECT o, CAST(substr(?1, o, 4) AS INTEGER) AS slot, CAST(substr(?1, o + 4, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 23, 19) AS INTEGER) AS seq, CAST(substr(?1, o + 42, 5) AS INTEGER) AS most
  FROM n WHERE length(?1) > 1))
RETURNING slot, fence;
