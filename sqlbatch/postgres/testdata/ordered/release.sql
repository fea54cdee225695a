UPDATE "public"."chanq_orders" AS q
SET lease_until = 0, fence = CASE WHEN q.fence > 8999998900488372224 THEN a.delivery ELSE greatest(q.fence, a.delivery) END + 1, attempts = q.attempts + CASE WHEN q.leased_by IS NULL THEN 1 ELSE 0 END - 1, leased_by = NULL
FROM (
  SELECT a.id, a.above, a.delivery, $2::bigint + coalesce(a.above, 0) AS stored
  FROM unnest((SELECT CASE WHEN set_config('lock_timeout', w.ms, true) IS NOT NULL THEN $1::uuid[] END FROM (VALUES ('100')) AS w (ms)), (SELECT $3::bigint[]), (SELECT $4::bigint[])) AS a (id, above, delivery)
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), a.stored;
