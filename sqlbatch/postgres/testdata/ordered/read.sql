WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now,
         (SELECT count(*) FROM unnest($2::smallint[], $3::bigint[]) AS a (slot, fence)
          JOIN "public"."chanq__slots" AS s ON s.queue = 'orders' AND s.slot = a.slot AND s.fence = a.fence AND s.consumer = $1::uuid) = cardinality($2::smallint[])
         AND EXISTS (SELECT 1 FROM "public"."chanq__consumers" AS m WHERE m.id = $1::uuid AND m.until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c))
         AND NOT EXISTS (SELECT 1 FROM "public"."chanq__queues" WHERE name = 'orders' AND paused) AS walked,
         (SELECT redriven FROM "public"."chanq__queues" WHERE name = 'orders') AS redriven
),
b AS MATERIALIZED (SELECT $5::bigint AS low, $6::bigint AS middle, $7::bigint AS high, $8::integer AS n, $12::integer AS behind)
(SELECT uuid_send(q.id) AS id, q.priority::integer AS priority, q.fence,
  least(q.attempts + CASE WHEN q.leased_by IS NOT DISTINCT FROM $1::uuid THEN 0 ELSE 1 END, 2000000000) AS attempts, least(q.lapses + CASE WHEN q.leased_by IS NULL OR q.leased_by = $1::uuid THEN 0 ELSE 1 END, 32767) AS lapses,
  coalesce(q.expires_at <= (SELECT now FROM t), false)::integer AS expired, q.enqueued_at, q.due_at, q.expires_at,
  NULL::bytea AS dedup_key, NULL::text AS type, NULL::bytea AS headers, NULL::bytea AS body, octet_length(q.body) AS size, q.slot::integer AS slot, q.seq, convert_to(q.order_key, getdatabaseencoding()) AS order_key,
  greatest(q.due_at - (SELECT now FROM t), CASE WHEN q.leased_by IS NOT DISTINCT FROM $1::uuid THEN 0 ELSE q.lease_until - (SELECT now FROM t) END, 0) AS wait,
  CASE WHEN q.expires_at IS NULL THEN 0 ELSE greatest(q.expires_at - (SELECT now FROM t), 1) END AS lives,
  CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = $1::uuid THEN 1 ELSE 2 END AS holder,
  CASE WHEN q.order_key IS NOT NULL AND (SELECT holds FROM "public"."chanq__queues" WHERE name = 'orders') = 1 AND (SELECT 1 FROM "public"."chanq_orders__dead" AS d WHERE d.slot = q.slot AND d.order_key = q.order_key LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END AS held,
  (false)::integer AS given, 0 AS locked
FROM (SELECT q.* FROM (SELECT q.* FROM "public"."chanq_orders" AS q WHERE (SELECT walked FROM t) AND (q.seq, q.slot) > ((SELECT low FROM b), 32767::smallint) AND q.seq <= (SELECT least(middle, high) FROM b) AND get_bit($4::bytea, q.slot) <> 0 ORDER BY q.seq LIMIT 20000) AS q LIMIT (SELECT behind FROM b)) AS q)
UNION ALL
(SELECT uuid_send(q.id) AS id, q.priority::integer AS priority, q.fence,
  least(q.attempts + CASE WHEN q.leased_by IS NOT DISTINCT FROM $1::uuid THEN 0 ELSE 1 END, 2000000000) AS attempts, least(q.lapses + CASE WHEN q.leased_by IS NULL OR q.leased_by = $1::uuid THEN 0 ELSE 1 END, 32767) AS lapses,
  coalesce(q.expires_at <= (SELECT now FROM t), false)::integer AS expired, q.enqueued_at, q.due_at, q.expires_at,
  CASE WHEN q.give THEN convert_to(q.dedup_key, getdatabaseencoding()) END AS dedup_key, CASE WHEN q.give THEN q.type END AS type, CASE WHEN q.give THEN q.headers END AS headers, CASE WHEN q.give THEN q.body END AS body, octet_length(q.body) AS size, q.slot::integer AS slot, q.seq, convert_to(q.order_key, getdatabaseencoding()) AS order_key,
  greatest(q.due_at - (SELECT now FROM t), CASE WHEN q.leased_by IS NOT DISTINCT FROM $1::uuid THEN 0 ELSE q.lease_until - (SELECT now FROM t) END, 0) AS wait,
  CASE WHEN q.expires_at IS NULL THEN 0 ELSE greatest(q.expires_at - (SELECT now FROM t), 1) END AS lives,
  CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = $1::uuid THEN 1 ELSE 2 END AS holder,
  CASE WHEN q.order_key IS NOT NULL AND (SELECT holds FROM "public"."chanq__queues" WHERE name = 'orders') = 1 AND (SELECT 1 FROM "public"."chanq_orders__dead" AS d WHERE d.slot = q.slot AND d.order_key = q.order_key LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END AS held,
  (q.give)::integer AS given, 0 AS locked
FROM (
  SELECT q.* FROM (
    SELECT q.*, (q.seq > $9::bigint AND octet_length(q.body) <= $11::integer) AS give
    FROM "public"."chanq_orders" AS q WHERE (SELECT walked FROM t) AND (q.seq, q.slot) > ((SELECT greatest(low, middle) FROM b), 32767::smallint) AND q.seq <= (SELECT high FROM b) AND get_bit($4::bytea, q.slot) <> 0 ORDER BY q.seq LIMIT 20000) AS q
  WHERE (q.order_key IN (SELECT convert_from(k.k, 'UTF8') FROM unnest($10::bytea[]) AS k (k))) IS NOT TRUE
    OR q.seq = (SELECT l.seq FROM (SELECT q.seq FROM "public"."chanq_orders" AS q WHERE (q.seq, q.slot) > ((SELECT greatest(low, middle) FROM b), 32767::smallint) AND q.seq <= (SELECT high FROM b) AND get_bit($4::bytea, q.slot) <> 0 ORDER BY q.seq LIMIT 20000) AS l
      LIMIT 1 OFFSET (SELECT 20000 - 1))
  LIMIT (SELECT n FROM b)) AS q)
UNION ALL
SELECT NULL, t.walked::integer, n.drawn, 0, 0, 0, coalesce(t.redriven, 0), 9223372036854775807, NULL, NULL, NULL, NULL, convert_to(coalesce(l.senders, ''), 'UTF8'), 0, 0, 0::bigint, NULL, 0::bigint, 0::bigint, 0, 0, 0, 0
FROM t
CROSS JOIN (SELECT ((last_value - CASE WHEN is_called THEN 0 ELSE 1 END + 1) << 20) - 1 AS drawn FROM "public"."chanq_orders__seq" OFFSET 0) AS n
CROSS JOIN LATERAL (
  SELECT string_agg(CASE WHEN l.virtualtransaction LIKE '-1/%' THEN '*' ELSE l.virtualtransaction END, ' ') AS senders
  FROM pg_catalog.pg_locks AS l
  WHERE l.locktype = 'advisory' AND l.classid = 1667788399 AND l.objid = (hashtext('"public"."chanq_orders"')::bigint & 4294967295)::oid AND l.objsubid = 2
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND n.drawn IS NOT NULL) AS l;
