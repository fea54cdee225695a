DELETE FROM "public"."chanq_orders" AS q
USING unnest((SELECT CASE WHEN set_config('lock_timeout', '100', true) IS NOT NULL THEN $1::uuid[] END), (SELECT $2::bigint[])) AS a (id, fence)
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[a.fence])
RETURNING uuid_send(q.id), q.fence;
