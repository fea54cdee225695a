WITH o AS MATERIALIZED (
  SELECT s.slot, s.fence, s.old
  FROM unnest($2::smallint[], $3::bigint[]) AS a (slot, fence)
  JOIN "public"."chanq_slots" AS s ON s.queue = 'orders' AND s.slot = a.slot AND s.fence = a.fence AND s.member = $1::uuid AND s.old > 0
),
b AS MATERIALIZED (SELECT 0::bigint AS low, coalesce(max(old), 0) AS high, 20000::integer AS n FROM o),
w AS MATERIALIZED (
  SELECT q.* FROM (SELECT q.seq, q.slot FROM "public"."chanq_orders" AS q WHERE (q.seq, q.slot) > ((SELECT low FROM b), 32767::smallint) AND q.seq <= (SELECT high FROM b) AND get_bit($4::bytea, q.slot) <> 0 ORDER BY q.seq LIMIT 20000) AS q LIMIT (SELECT n FROM b)
)
UPDATE "public"."chanq_slots" AS s
SET old = 0
FROM o
WHERE s.queue = 'orders' AND s.slot = o.slot AND s.fence = o.fence
  AND NOT EXISTS (SELECT 1 FROM w WHERE w.slot = o.slot AND w.seq <= o.old)
  AND ((SELECT count(*) FROM w) < (SELECT n FROM b) OR (SELECT max(seq) FROM w) >= o.old)
RETURNING s.slot, s.fence;
