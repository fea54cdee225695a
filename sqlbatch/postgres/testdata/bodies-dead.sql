SELECT uuid_send(q.id), q.headers, q.body
FROM unnest((SELECT $1::uuid[])) AS a (id)
JOIN "public"."chanq_orders__dead" AS q ON q.id = ANY (ARRAY[a.id]);
