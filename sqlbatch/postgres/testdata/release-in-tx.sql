UPDATE "public"."chanq_orders" AS q
SET visible_at = a.due, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[]), (SELECT $4::bigint[])) AS a (id, above, due)
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence - 1;
