WITH t AS MATERIALIZED (
  SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, $1::integer AS n
),
urgent AS MATERIALIZED (
  SELECT * FROM (
    SELECT id FROM "public"."chanq_orders"
    WHERE priority = 2 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000) AS l
  LIMIT (SELECT t.n FROM t)
),
high AS MATERIALIZED (
  SELECT * FROM (
    SELECT id FROM "public"."chanq_orders"
    WHERE priority = 1 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000) AS l
  LIMIT (SELECT t.n - (SELECT count(*) FROM urgent) FROM t)
),
normal AS MATERIALIZED (
  SELECT * FROM (
    SELECT id FROM "public"."chanq_orders"
    WHERE priority = 0 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000) AS l
  LIMIT (SELECT t.n - (SELECT count(*) FROM urgent) - (SELECT count(*) FROM high) FROM t)
),
low AS MATERIALIZED (
  SELECT * FROM (
    SELECT id FROM "public"."chanq_orders"
    WHERE priority = -1 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000) AS l
  LIMIT (SELECT t.n - (SELECT count(*) FROM urgent) - (SELECT count(*) FROM high) - (SELECT count(*) FROM normal) FROM t)
)
SELECT CASE WHEN q.visible_at <= (SELECT now FROM t) THEN 'ready' WHEN q.leased_by IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.visible_at AS due_at, q.leased_by, q.dedup_key, q.last_error, q.headers, q.body
FROM (
  SELECT * FROM urgent UNION ALL SELECT * FROM high UNION ALL SELECT * FROM normal UNION ALL SELECT * FROM low
) AS c
JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[c.id])
ORDER BY q.priority DESC, q.visible_at, q.id;
