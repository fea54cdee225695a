UPDATE "public"."chanq_orders" AS q
SET lease_until = (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)
FROM unnest((SELECT $1::uuid[])) AS a (id)
WHERE q.id = ANY (ARRAY[a.id]) AND q.leased_by = $2::uuid AND q.lease_until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)
RETURNING uuid_send(q.id);
