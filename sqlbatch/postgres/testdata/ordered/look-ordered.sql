WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now,
         (SELECT count(*) FROM unnest($2::smallint[], $3::bigint[]) AS a (slot, fence)
          JOIN "public"."chanq__slots" AS s ON s.queue = 'orders' AND s.slot = a.slot AND s.fence = a.fence AND s.consumer = $1::uuid) = cardinality($2::smallint[])
         AND EXISTS (SELECT 1 FROM "public"."chanq__consumers" AS m WHERE m.id = $1::uuid AND m.until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c))
         AND NOT EXISTS (SELECT 1 FROM "public"."chanq__queues" WHERE name = 'orders' AND paused) AS walked,
         (SELECT redriven FROM "public"."chanq__queues" WHERE name = 'orders') AS redriven
),
l AS MATERIALIZED (SELECT l.transactionid::text AS number FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'transactionid')
SELECT uuid_send(q.id) AS id, q.priority::integer AS priority, q.fence,
  least(q.attempts + CASE WHEN q.leased_by IS NOT DISTINCT FROM $1::uuid THEN 0 ELSE 1 END, 2000000000) AS attempts, least(q.lapses + CASE WHEN q.leased_by IS NULL OR q.leased_by = $1::uuid THEN 0 ELSE 1 END, 32767) AS lapses,
  coalesce(q.expires_at <= (SELECT now FROM t), false)::integer AS expired, q.enqueued_at, q.due_at, q.expires_at,
  NULL::bytea AS dedup_key, NULL::text AS type, NULL::bytea AS headers, NULL::bytea AS body, octet_length(q.body) AS size, q.slot::integer AS slot, q.seq, convert_to(q.order_key, getdatabaseencoding()) AS order_key,
  greatest(q.due_at - (SELECT now FROM t), CASE WHEN q.leased_by IS NOT DISTINCT FROM $1::uuid THEN 0 ELSE q.lease_until - (SELECT now FROM t) END, 0) AS wait,
  CASE WHEN q.expires_at IS NULL THEN 0 ELSE greatest(q.expires_at - (SELECT now FROM t), 1) END AS lives,
  CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = $1::uuid THEN 1 ELSE 2 END AS holder,
  CASE WHEN q.order_key IS NOT NULL AND (SELECT holds FROM "public"."chanq__queues" WHERE name = 'orders') = 1 AND (SELECT 1 FROM "public"."chanq_orders__dead" AS d WHERE d.slot = q.slot AND d.order_key = q.order_key LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END AS held,
  (false)::integer AS given, CASE WHEN q.xmax::text IN (SELECT number FROM l) THEN 1 ELSE 2 END AS locked
FROM unnest((SELECT $4::uuid[])) AS a (id)
JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id])
WHERE (SELECT walked FROM t) AND get_bit($5::bytea, q.slot) <> 0
UNION ALL
SELECT NULL, t.walked::integer, 0::bigint, 0, 0, 0, coalesce(t.redriven, 0), 0::bigint, NULL, NULL, NULL, NULL, NULL, 0, 0, 0::bigint, NULL, 0::bigint, 0::bigint, 0, 0, 0, 0
FROM t;
