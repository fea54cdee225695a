SELECT uuid_send(q.id), convert_to(q.dedup_key, getdatabaseencoding()), q.fence
FROM unnest((SELECT CASE WHEN pg_logical_emit_message(true, 'chanq', '') IS NOT NULL THEN $1::uuid[] END)) AS a (id)
JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id])
UNION ALL
SELECT uuid_send(q.id), convert_to(q.dedup_key, getdatabaseencoding()), 0
FROM unnest((SELECT $2::bytea[])) AS a (dedup_key)
JOIN "public"."chanq_orders" AS q ON q.dedup_key = ANY (ARRAY[convert_from(a.dedup_key, 'UTF8')]) AND q.dedup_key IS NOT NULL;
