UPDATE "public"."chanq_orders" AS q
SET lease_until = 0, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM unnest((SELECT CASE WHEN set_config('lock_timeout', '100', true) IS NOT NULL THEN $1::uuid[] END), (SELECT $3::bigint[])) AS a (id, above)
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence - 1;
