UPDATE "public"."chanq_orders" AS q
SET lease_until = least(greatest(q.lease_until, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) + $4::bigint), coalesce((SELECT m.until FROM "public"."chanq__consumers" AS m WHERE m.id = coalesce(q.leased_by, $5::uuid)), q.lease_until)),
    attempts = least(q.attempts + CASE WHEN q.leased_by IS NULL THEN 1 ELSE 0 END, 2000000000), leased_by = coalesce(q.leased_by, $5::uuid)
FROM (
  SELECT a.* FROM (
  SELECT a.id, a.above
  FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[])) AS a (id, above)
) AS a
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  FOR UPDATE OF q SKIP LOCKED
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence;
