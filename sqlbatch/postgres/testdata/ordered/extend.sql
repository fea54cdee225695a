UPDATE "public"."chanq_orders" AS q
SET lease_until = least(greatest(q.lease_until, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) + $4::bigint), coalesce((SELECT m.until FROM "public"."chanq_members" AS m WHERE m.id = q.leased_by), q.lease_until))
FROM unnest((SELECT CASE WHEN set_config('lock_timeout', '100', true) IS NOT NULL THEN $1::uuid[] END), (SELECT $3::bigint[])) AS a (id, above)
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence;
