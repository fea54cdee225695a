WITH wanted AS MATERIALIZED (
  SELECT s.slot, s.fence
  FROM unnest($2::smallint[]) AS a (slot)
  JOIN "public"."chanq__slots" AS s ON s.queue = 'orders' AND s.slot = a.slot
  WHERE EXISTS (SELECT 1 FROM "public"."chanq__consumers" AS m WHERE m.id = $1::uuid AND m.until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c))
    AND (s.consumer IS NULL OR s.consumer = $1::uuid OR NOT EXISTS (SELECT 1 FROM "public"."chanq__consumers" AS m WHERE m.id = s.consumer AND m.until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)))
),
free AS MATERIALIZED (
  SELECT s.slot
  FROM wanted AS w
  JOIN "public"."chanq__slots" AS s ON s.queue = 'orders' AND s.slot = w.slot AND s.fence = w.fence
  FOR UPDATE OF s SKIP LOCKED
)
UPDATE "public"."chanq__slots" AS s
SET consumer = $1::uuid, fence = greatest(s.fence, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) << 20) + $3::bigint, old = CASE WHEN s.consumer IS NULL THEN s.old ELSE (SELECT ((last_value - CASE WHEN is_called THEN 0 ELSE 1 END + 1) << 20) - 1 AS drawn FROM "public"."chanq_orders__seq") END
FROM free AS f
WHERE s.queue = 'orders' AND s.slot = f.slot
RETURNING s.slot, s.fence, s.old;
