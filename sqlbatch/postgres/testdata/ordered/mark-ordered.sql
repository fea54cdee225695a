UPDATE "public"."chanq_orders" AS q
SET fence = CASE WHEN q.fence > 8999998900488372224 THEN a.slot_fence ELSE greatest(q.fence + 1, a.slot_fence) END, attempts = least(q.attempts + 1, 2000000000),
    lapses = least(q.lapses + CASE WHEN q.leased_by <> $5::uuid THEN 1 ELSE 0 END, 32767), leased_by = $5::uuid,
    history = CASE WHEN q.leased_by <> $5::uuid THEN left((SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) || ' ' || (0) || ' ' || coalesce(left((SELECT m.name FROM "public"."chanq__consumers" AS m WHERE m.id = q.leased_by), 60), '') || chr(10) || 'the lease expired' || chr(30) || coalesce(q.history, ''), 2000) ELSE q.history END
FROM (
  SELECT a.* FROM (
  SELECT a.id, a.above, a.slot_fence
  FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[]), (SELECT $4::bigint[])) AS a (id, above, slot_fence)
) AS a
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  FOR UPDATE OF q SKIP LOCKED
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence, q.lapses;
