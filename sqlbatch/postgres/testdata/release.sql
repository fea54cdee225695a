UPDATE "public"."chanq_orders" AS q
SET lease_until = 0, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM (
  SELECT a.id, a.above
  FROM unnest((SELECT CASE WHEN set_config('lock_timeout', w.ms, true) IS NOT NULL THEN $1::uuid[] END FROM (VALUES ('100')) AS w (ms)), (SELECT $3::bigint[])) AS a (id, above)
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence - 1;
