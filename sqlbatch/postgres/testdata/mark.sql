WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now WHERE NOT EXISTS (SELECT 1 FROM "public"."chanq__queues" WHERE name = 'orders' AND paused)
),
chosen AS MATERIALIZED (
  SELECT q.id FROM "public"."chanq_orders" AS q
  WHERE q.id = ANY (ARRAY[$4::uuid]) AND q.fence = $5::bigint AND q.due_at <= (SELECT now FROM t) AND (q.lease_until <= (SELECT now FROM t) OR ($7::integer = 1 AND q.leased_by IS NOT DISTINCT FROM $2::uuid))
  FOR UPDATE SKIP LOCKED
)
UPDATE "public"."chanq_orders" AS q
SET lease_until = (SELECT now FROM t) + $1::bigint, fence = CASE WHEN q.fence > 8999998900488372224 THEN (SELECT now << 20 FROM t) ELSE greatest(q.fence, (SELECT now << 20 FROM t)) END + $3::bigint,
    attempts = CASE WHEN ($7::integer = 1 AND q.leased_by IS NOT DISTINCT FROM $2::uuid) THEN q.attempts ELSE least(q.attempts + 1, 2000000000) END,
    lapses = CASE WHEN q.leased_by IS NULL OR ($7::integer = 1 AND q.leased_by IS NOT DISTINCT FROM $2::uuid) THEN q.lapses ELSE least(q.lapses + 1, 32767) END,
    crashes = CASE WHEN q.leased_by IS NULL OR q.alone = 0 OR ($7::integer = 1 AND q.leased_by IS NOT DISTINCT FROM $2::uuid) THEN q.crashes ELSE least(q.crashes + 1, 32767) END,
    leased_by = $2::uuid, alone = $6::smallint
FROM chosen AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING uuid_send(q.id), q.priority, q.fence, q.attempts, q.lapses, (coalesce(q.expires_at <= (SELECT now FROM t), false))::integer AS expired,
          q.enqueued_at, q.due_at, q.expires_at, NULL::bytea AS dedup_key, NULL::text AS type, NULL::bytea AS headers, NULL::bytea AS body, octet_length(q.body) AS size;
