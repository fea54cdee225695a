UPDATE "main"."chanq__slots" SET consumer = NULL, old = CASE WHEN slot IN (SELECT p.slot FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 24 FROM n WHERE o + 24 < length(?2))
    SELECT CAST(substr(?2, o, 4) AS INTEGER) AS slot, CAST(substr(?2, o + 4, 19) AS INTEGER) AS fence, substr(?2, o + 23, 1) = x'31' AS doubt FROM n WHERE length(?2) > 1) AS p WHERE p.doubt) THEN coalesce((SELECT z.seq FROM "main"."sqlite_sequence" AS z WHERE z.name = 'chanq_orders'), 0) ELSE old END
WHERE queue = 'orders' AND consumer = ?1 AND (slot, fence) IN (SELECT slot, fence FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 24 FROM n WHERE o + 24 < length(?2))
    SELECT CAST(substr(?2, o, 4) AS INTEGER) AS slot, CAST(substr(?2, o + 4, 19) AS INTEGER) AS fence, substr(?2, o + 23, 1) = x'31' AS doubt FROM n WHERE length(?2) > 1))
RETURNING slot, fence;
