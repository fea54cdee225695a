WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::bigint AS n
),
ready AS MATERIALIZED (
  SELECT f.due_at FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
  CROSS JOIN LATERAL (
    SELECT e.due_at FROM (
      SELECT q.due_at, q.lease_until FROM "public"."chanq_orders" AS q
      WHERE q.priority = p.priority AND q.due_at <= (SELECT now FROM t)
      ORDER BY q.due_at LIMIT (SELECT 10 * n FROM t)) AS e
    WHERE e.lease_until <= (SELECT now FROM t) LIMIT (SELECT n FROM t)) AS f
)
SELECT
  (SELECT least(count(*), (SELECT n FROM t)) FROM ready) AS ready,
  (SELECT count(*) FROM (
    SELECT 1 FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS JOIN LATERAL (
      SELECT 1 FROM "public"."chanq_orders" AS q
      WHERE q.priority = p.priority AND q.due_at > (SELECT now FROM t)
      ORDER BY q.due_at LIMIT (SELECT n FROM t)) AS f
    LIMIT (SELECT n FROM t)) AS s) AS scheduled,
  (SELECT least(count(*), (SELECT n FROM t)) FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS JOIN LATERAL (
      SELECT q.due_at, q.lease_until FROM "public"."chanq_orders" AS q
      WHERE q.priority = p.priority AND q.due_at <= (SELECT now FROM t)
      ORDER BY q.due_at LIMIT (SELECT 2 * n FROM t)) AS e
    WHERE e.lease_until > (SELECT now FROM t)) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM "public"."chanq_orders__dead" LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM "public"."chanq_orders__done" LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(due_at) FROM ready) AS oldest,
  (SELECT paused::integer FROM "public"."chanq__queues" WHERE name = 'orders') AS paused;
