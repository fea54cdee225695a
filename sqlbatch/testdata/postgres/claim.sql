WITH t AS MATERIALIZED (
  SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
         CASE WHEN EXISTS (SELECT 1 FROM "public"."chanq_queues" WHERE name = 'orders' AND paused) THEN 0 ELSE $1::integer END AS n
),
urgent AS MATERIALIZED (
  SELECT * FROM (
    SELECT id, visible_at FROM "public"."chanq_orders"
    WHERE priority = 2 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT t.n FROM t)
),
high AS MATERIALIZED (
  SELECT * FROM (
    SELECT id, visible_at FROM "public"."chanq_orders"
    WHERE priority = 1 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT t.n - (SELECT count(*) FROM urgent) FROM t)
),
normal AS MATERIALIZED (
  SELECT * FROM (
    SELECT id, visible_at FROM "public"."chanq_orders"
    WHERE priority = 0 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT t.n - (SELECT count(*) FROM urgent) - (SELECT count(*) FROM high) FROM t)
),
low AS MATERIALIZED (
  SELECT * FROM (
    SELECT id, visible_at FROM "public"."chanq_orders"
    WHERE priority = -1 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT t.n - (SELECT count(*) FROM urgent) - (SELECT count(*) FROM high) - (SELECT count(*) FROM normal) FROM t)
)
UPDATE "public"."chanq_orders" AS q
SET visible_at = (SELECT now FROM t) + $2::bigint, fence = q.fence + 1, attempts = q.attempts + 1, leased_by = $3::text
FROM (
  SELECT * FROM urgent UNION ALL SELECT * FROM high UNION ALL SELECT * FROM normal UNION ALL SELECT * FROM low
) AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING uuid_send(q.id), q.priority, q.fence, q.attempts, q.enqueued_at, c.visible_at AS due_at, q.dedup_key, q.headers, q.body;
