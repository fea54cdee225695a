WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::integer AS n
)
SELECT s.slot, (SELECT convert_to(m.name, getdatabaseencoding()) FROM "public"."chanq_members" AS m WHERE m.id = s.member) AS owner,
       r.messages, r.waiting, r.oldest, convert_to(r.top_key, getdatabaseencoding()) AS top_key, r.top
FROM "public"."chanq_slots" AS s
CROSS JOIN LATERAL (
  SELECT coalesce(sum(k.messages), 0)::bigint AS messages, coalesce(sum(k.waiting), 0)::bigint AS waiting, t.now - min(k.first) AS oldest,
         (array_agg(k.order_key ORDER BY k.messages DESC, k.order_key) FILTER (WHERE k.order_key IS NOT NULL))[1] AS top_key,
         coalesce(max(k.messages) FILTER (WHERE k.order_key IS NOT NULL), 0) AS top
  FROM t
  LEFT JOIN LATERAL (
    SELECT e.order_key, count(*) AS messages, count(*) FILTER (WHERE e.due_at > t.now OR e.lease_until > t.now) AS waiting, min(e.enqueued_at) AS first
    FROM (
      SELECT f.* FROM (
        SELECT q.order_key, q.due_at, q.lease_until, q.enqueued_at FROM "public"."chanq_orders" AS q
        WHERE (q.slot, q.seq) > (s.slot, (-1)) AND q.slot <= s.slot ORDER BY q.slot, q.seq LIMIT 1000) AS f
      LIMIT (SELECT n FROM t)) AS e
    GROUP BY e.order_key) AS k ON true
  GROUP BY t.now) AS r
WHERE s.queue = 'orders'
ORDER BY s.slot;
