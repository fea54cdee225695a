WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::integer AS n
),
first AS MATERIALIZED (
  SELECT e.* FROM (
    SELECT q.slot, q.order_key, q.due_at, q.lease_until, q.enqueued_at FROM "public"."chanq_orders" AS q
    WHERE (q.seq, q.slot) > (0::bigint, 32767::smallint) ORDER BY q.seq LIMIT 100000) AS e
  LIMIT (SELECT n FROM t)
),
k AS MATERIALIZED (
  SELECT e.slot, e.order_key, count(*) AS messages, count(*) FILTER (WHERE e.due_at > (SELECT now FROM t) OR e.lease_until > (SELECT now FROM t)) AS waiting, min(e.enqueued_at) AS first
  FROM first AS e
  GROUP BY e.slot, e.order_key
)
SELECT s.slot, (SELECT convert_to(m.name, getdatabaseencoding()) FROM "public"."chanq__consumers" AS m WHERE m.id = s.consumer) AS owner,
       r.messages, r.waiting, r.oldest, convert_to(r.top_key, getdatabaseencoding()) AS top_key, r.top
FROM "public"."chanq__slots" AS s
CROSS JOIN LATERAL (
  SELECT coalesce(sum(k.messages), 0)::bigint AS messages, coalesce(sum(k.waiting), 0)::bigint AS waiting, (SELECT now FROM t) - min(k.first) AS oldest,
         (array_agg(k.order_key ORDER BY k.messages DESC, k.order_key) FILTER (WHERE k.order_key IS NOT NULL))[1] AS top_key,
         coalesce(max(k.messages) FILTER (WHERE k.order_key IS NOT NULL), 0) AS top
  FROM k
  WHERE k.slot = s.slot) AS r
WHERE s.queue = 'orders'
ORDER BY s.slot;
