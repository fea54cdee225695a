WITH t AS MATERIALIZED (
  SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, $1::bigint AS n
)
SELECT
  least((SELECT count(*) FROM (
    SELECT 1 FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS JOIN LATERAL (
      SELECT 1 FROM "public"."chanq_orders" AS q
      WHERE q.priority = p.priority AND q.leased_by IS NOT NULL AND q.visible_at <= (SELECT now FROM t)
      ORDER BY q.visible_at LIMIT (SELECT n FROM t)
    ) AS f
    LIMIT (SELECT n FROM t)) AS r) + (SELECT count(*) FROM (
    SELECT 1 FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS JOIN LATERAL (
      SELECT 1 FROM "public"."chanq_orders" AS q
      WHERE q.priority = p.priority AND q.leased_by IS NULL AND q.visible_at <= (SELECT now FROM t)
      ORDER BY q.visible_at LIMIT (SELECT n FROM t)
    ) AS f
    LIMIT (SELECT n FROM t)) AS r), (SELECT n FROM t)) AS ready,
  (SELECT count(*) FROM (
    SELECT 1 FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS JOIN LATERAL (
      SELECT 1 FROM "public"."chanq_orders" AS q
      WHERE q.priority = p.priority AND q.leased_by IS NULL AND q.visible_at > (SELECT now FROM t)
      ORDER BY q.visible_at LIMIT (SELECT n FROM t)
    ) AS f
    LIMIT (SELECT n FROM t)) AS r) AS scheduled,
  (SELECT count(*) FROM (
    SELECT 1 FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS JOIN LATERAL (
      SELECT 1 FROM "public"."chanq_orders" AS q
      WHERE q.priority = p.priority AND q.leased_by IS NOT NULL AND q.visible_at > (SELECT now FROM t)
      ORDER BY q.visible_at LIMIT (SELECT n FROM t)
    ) AS f
    LIMIT (SELECT n FROM t)) AS r) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM "public"."chanq_orders_dead" LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM "public"."chanq_orders_done" LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(f.visible_at)
  FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
  CROSS JOIN LATERAL ((
    SELECT q.visible_at FROM "public"."chanq_orders" AS q
    WHERE q.priority = p.priority AND q.leased_by IS NOT NULL AND q.visible_at <= (SELECT now FROM t)
    ORDER BY q.visible_at LIMIT 1) UNION ALL (
    SELECT q.visible_at FROM "public"."chanq_orders" AS q
    WHERE q.priority = p.priority AND q.leased_by IS NULL AND q.visible_at <= (SELECT now FROM t)
    ORDER BY q.visible_at LIMIT 1)) AS f) AS oldest,
  (SELECT paused::integer FROM "public"."chanq_queues" WHERE name = 'orders') AS paused;
