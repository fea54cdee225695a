UPDATE "public"."chanq_orders" AS q
SET visible_at = (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) + $3::bigint
FROM unnest((SELECT $1::uuid[]), (SELECT $2::bigint[])) AS a (id, fence)
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[a.fence])
RETURNING uuid_send(q.id), q.fence;
