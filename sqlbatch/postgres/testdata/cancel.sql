DELETE FROM "public"."chanq_orders" AS q
USING unnest((SELECT $1::uuid[])) AS a (id)
WHERE q.id = ANY (ARRAY[a.id])
RETURNING uuid_send(q.id);
