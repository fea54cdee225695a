DELETE FROM "public"."chanq_orders" AS q
USING (
  SELECT a.* FROM unnest((SELECT $1::uuid[]), (SELECT $2::bigint[])) AS a (id, fence)
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[a.fence])
  FOR UPDATE OF q SKIP LOCKED
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[a.fence])
RETURNING uuid_send(q.id), q.fence;
