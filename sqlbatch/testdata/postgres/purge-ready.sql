WITH t AS MATERIALIZED (
  SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, $1::integer AS n
),
urgent AS MATERIALIZED (
  SELECT * FROM (
    SELECT id FROM "public"."chanq_orders"
    WHERE priority = 2 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT t.n FROM t)
),
high AS MATERIALIZED (
  SELECT * FROM (
    SELECT id FROM "public"."chanq_orders"
    WHERE priority = 1 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT t.n - (SELECT count(*) FROM urgent) FROM t)
),
normal AS MATERIALIZED (
  SELECT * FROM (
    SELECT id FROM "public"."chanq_orders"
    WHERE priority = 0 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT t.n - (SELECT count(*) FROM urgent) - (SELECT count(*) FROM high) FROM t)
),
low AS MATERIALIZED (
  SELECT * FROM (
    SELECT id FROM "public"."chanq_orders"
    WHERE priority = -1 AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT t.n - (SELECT count(*) FROM urgent) - (SELECT count(*) FROM high) - (SELECT count(*) FROM normal) FROM t)
)
DELETE FROM "public"."chanq_orders"
WHERE id = ANY (ARRAY(SELECT c.id FROM (
  SELECT * FROM urgent UNION ALL SELECT * FROM high UNION ALL SELECT * FROM normal UNION ALL SELECT * FROM low
) AS c))
RETURNING uuid_send(id);
