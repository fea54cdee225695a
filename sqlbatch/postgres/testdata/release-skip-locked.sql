UPDATE "public"."chanq_orders" AS q
SET lease_until = 0, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM (
  SELECT a.* FROM (
  SELECT a.id, a.above
  FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[])) AS a (id, above)
) AS a
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  FOR UPDATE OF q SKIP LOCKED
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence - 1;
