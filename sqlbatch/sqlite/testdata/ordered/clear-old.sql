WITH o AS MATERIALIZED (
  SELECT s.slot, s.fence, s.old FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 24 FROM n WHERE o + 24 < length(?2))
    SELECT CAST(substr(?2, o, 4) AS INTEGER) AS slot, CAST(substr(?2, o + 4, 19) AS INTEGER) AS fence, substr(?2, o + 23, 1) = x'31' AS doubt FROM n WHERE length(?2) > 1) AS p
  CROSS JOIN "main"."chanq_slots" AS s ON s.queue = 'orders' AND s.slot = p.slot AND s.fence = p.fence AND s.member = ?1 AND s.old > 0
),
w AS MATERIALIZED (
  SELECT q.seq, q.slot FROM "main"."chanq_orders" AS q WHERE q.seq <= (SELECT max(old) FROM o) AND substr(?3, q.slot + 1, 1) = '1' ORDER BY q.seq LIMIT 20000
)
UPDATE "main"."chanq_slots" SET old = 0
WHERE queue = 'orders' AND slot IN (
  SELECT o.slot FROM o
  WHERE NOT EXISTS (SELECT 1 FROM w WHERE w.slot = o.slot AND w.seq <= o.old)
    AND ((SELECT count(*) FROM w) < 20000 OR (SELECT max(seq) FROM w) >= o.old))
RETURNING slot, fence;
