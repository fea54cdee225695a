SELECT uuid_send(q.id), q.fence
FROM unnest((SELECT CASE WHEN pg_logical_emit_message(true, 'chanq', '') IS NOT NULL THEN $1::uuid[] END)) AS a (id)
JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]);
