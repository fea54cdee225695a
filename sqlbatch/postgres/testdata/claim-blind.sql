WITH t AS MATERIALIZED (
  SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
         CASE WHEN EXISTS (SELECT 1 FROM "public"."chanq_queues" WHERE name = 'orders' AND paused) THEN 0 ELSE $1::integer END AS n
),
chosen AS MATERIALIZED (
  SELECT * FROM (
    (SELECT * FROM (
      SELECT id, visible_at FROM "public"."chanq_orders"
      WHERE priority = 2 AND leased_by IS NOT NULL AND visible_at <= (SELECT now FROM t) AND lapses + 1 < (SELECT $5::integer)
      ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l1 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id, visible_at FROM "public"."chanq_orders"
      WHERE priority = 2 AND leased_by IS NULL AND visible_at <= (SELECT now FROM t) AND lapses < (SELECT $5::integer)
      ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l2 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id, visible_at FROM "public"."chanq_orders"
      WHERE priority = 1 AND leased_by IS NOT NULL AND visible_at <= (SELECT now FROM t) AND lapses + 1 < (SELECT $5::integer)
      ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l3 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id, visible_at FROM "public"."chanq_orders"
      WHERE priority = 1 AND leased_by IS NULL AND visible_at <= (SELECT now FROM t) AND lapses < (SELECT $5::integer)
      ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l4 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id, visible_at FROM "public"."chanq_orders"
      WHERE priority = 0 AND leased_by IS NOT NULL AND visible_at <= (SELECT now FROM t) AND lapses + 1 < (SELECT $5::integer)
      ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l5 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id, visible_at FROM "public"."chanq_orders"
      WHERE priority = 0 AND leased_by IS NULL AND visible_at <= (SELECT now FROM t) AND lapses < (SELECT $5::integer)
      ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l6 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id, visible_at FROM "public"."chanq_orders"
      WHERE priority = -1 AND leased_by IS NOT NULL AND visible_at <= (SELECT now FROM t) AND lapses + 1 < (SELECT $5::integer)
      ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l7 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id, visible_at FROM "public"."chanq_orders"
      WHERE priority = -1 AND leased_by IS NULL AND visible_at <= (SELECT now FROM t) AND lapses < (SELECT $5::integer)
      ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l8 LIMIT (SELECT n FROM t))
  ) AS l
  LIMIT (SELECT n FROM t)
)
UPDATE "public"."chanq_orders" AS q
SET visible_at = (SELECT now FROM t) + $2::bigint, fence = greatest(q.fence, (SELECT now << 20 FROM t)) + $4::bigint,
    attempts = q.attempts + 1, lapses = CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE least(q.lapses + 1, 32767) END, leased_by = $3::uuid
FROM chosen AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING uuid_send(q.id), q.priority, q.fence, q.attempts, q.lapses, (coalesce(q.expires_at <= (SELECT now FROM t), false))::integer AS expired,
          q.enqueued_at, c.visible_at AS due_at, q.expires_at, NULL::bytea AS dedup_key, NULL::bytea AS headers, NULL::bytea AS body;
