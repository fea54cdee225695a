WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::bigint AS n
),
first AS MATERIALIZED (
  SELECT e.* FROM "public"."chanq_slots" AS s
  CROSS JOIN LATERAL (
    SELECT q.due_at, q.lease_until FROM "public"."chanq_orders" AS q
    WHERE (q.slot, q.seq) > (s.slot, (-1)) AND q.slot <= s.slot
    ORDER BY q.slot, q.seq LIMIT (SELECT n / 4 + 10 FROM t)) AS e
  WHERE s.queue = 'orders'
)
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM (SELECT due_at, lease_until FROM "public"."chanq_orders" LIMIT (SELECT 2 * n FROM t)) AS q
    WHERE q.due_at <= (SELECT now FROM t) AND q.lease_until <= (SELECT now FROM t) LIMIT (SELECT n FROM t)) AS r) AS ready,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE due_at > (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS scheduled,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE lease_until > (SELECT now FROM t)) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM "public"."chanq_orders_dead" LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM "public"."chanq_orders_done" LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(due_at) FROM first WHERE due_at <= (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS oldest,
  (SELECT paused::integer FROM "public"."chanq_queues" WHERE name = 'orders') AS paused;
