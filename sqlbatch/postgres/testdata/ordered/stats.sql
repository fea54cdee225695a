WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::bigint AS n
),
first AS MATERIALIZED (
  SELECT e.* FROM (SELECT q.due_at, q.lease_until FROM "public"."chanq_orders" AS q WHERE (q.seq, q.slot) > (0::bigint, 32767::smallint) ORDER BY q.seq LIMIT 100000) AS e LIMIT (SELECT 2 * n FROM t)
)
SELECT
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE due_at <= (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS ready,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE due_at > (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS scheduled,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE lease_until > (SELECT now FROM t)) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM "public"."chanq_orders__dead" LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM "public"."chanq_orders__done" LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(due_at) FROM first WHERE due_at <= (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS oldest,
  (SELECT paused::integer FROM "public"."chanq__queues" WHERE name = 'orders') AS paused;
