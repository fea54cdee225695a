WITH gone AS (
DELETE FROM "public"."chanq_orders" AS q
USING (
  SELECT a.id, a.above
  FROM unnest((SELECT CASE WHEN set_config('lock_timeout', w.ms, true) IS NOT NULL THEN $1::uuid[] END FROM (VALUES ('100')) AS w (ms)), (SELECT $3::bigint[])) AS a (id, above)
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING q.id, q.fence
), n AS (
  SELECT count(*) = cardinality($1::uuid[]) AS all FROM gone
)
SELECT uuid_send(gone.id), gone.fence FROM n JOIN gone ON NOT n.all
UNION ALL
SELECT NULL, NULL FROM n WHERE n.all;
