UPDATE "public"."chanq_orders" AS q
SET fence = CASE WHEN q.fence > 8999998900488372224 THEN a.delivery ELSE greatest(q.fence, a.delivery) END + 1,
    attempts = least(CASE WHEN $6::integer = 1 THEN q.attempts + CASE WHEN q.leased_by IS NULL THEN 1 ELSE 0 END WHEN q.leased_by = $5::uuid THEN q.attempts - 1 ELSE q.attempts END, 2000000000),
    lapses = least(q.lapses + $6::integer, 32767),
    lease_until = CASE WHEN $6::integer = 0 AND q.leased_by <> $5::uuid THEN q.lease_until ELSE 0 END,
    leased_by = CASE WHEN $6::integer = 0 AND q.leased_by <> $5::uuid THEN q.leased_by END,
    history = CASE WHEN $6::integer = 1 THEN left((SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) || ' ' || (0) || ' ' || coalesce(left((SELECT m.name FROM "public"."chanq__consumers" AS m WHERE m.id = $5::uuid), 60), '') || chr(10) || 'the lease expired' || chr(30) || coalesce(q.history, ''), 2000) ELSE q.history END
FROM (
  SELECT a.* FROM (
  SELECT a.id, a.above, a.delivery
  FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[]), (SELECT $4::bigint[])) AS a (id, above, delivery)
) AS a
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  FOR UPDATE OF q SKIP LOCKED
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence, least(q.lapses + CASE WHEN q.leased_by <> $5::uuid THEN 1 ELSE 0 END, 32767);
