DELETE FROM "public"."chanq_orders__dead" AS d
USING unnest((SELECT $1::uuid[])) AS a (id)
WHERE d.id = ANY (ARRAY[a.id])
RETURNING uuid_send(d.id);
