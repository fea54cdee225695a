UPDATE "public"."chanq_orders" AS q
SET due_at = (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) + coalesce(a.delay, 0), lease_until = 0, fence = CASE WHEN q.fence > 8999998900488372224 THEN a.delivery ELSE greatest(q.fence, a.delivery) END + 1, attempts = least(q.attempts + CASE WHEN q.leased_by IS NULL THEN 1 ELSE 0 END, 2000000000) - q.lapses - 1, lapses = 0, leased_by = NULL, last_error = coalesce(a.error, q.last_error), history = q.history
FROM (
  SELECT a.* FROM (
  SELECT a.id, a.above, $2::bigint + coalesce(a.above, 0) AS stored, a.delivery, a.delay, a.took, CASE WHEN a.bytes > 0 THEN convert_from(substring($9::bytea FROM a.starts FOR a.bytes), 'UTF8') END AS error
  FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::bigint[]), (SELECT $6::bigint[]), (SELECT $7::integer[]), (SELECT $8::integer[])) AS a (id, above, delivery, delay, took, starts, bytes)
) AS a
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  FOR UPDATE OF q SKIP LOCKED
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), a.stored;
