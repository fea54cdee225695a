WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, (SELECT count(*) FROM "public"."chanq__consumers" AS m WHERE m.queue = 'orders' AND m.until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)) AS consumers
)
SELECT s.slot, uuid_send(s.consumer) AS owner, CASE WHEN s.consumer IS NOT NULL THEN coalesce(m.until - t.now, 0) END AS "left", s.fence, t.consumers
FROM t
CROSS JOIN "public"."chanq__slots" AS s
LEFT JOIN "public"."chanq__consumers" AS m ON m.id = s.consumer
WHERE s.queue = 'orders'
ORDER BY s.slot;
