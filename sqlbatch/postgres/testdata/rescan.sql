WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, 10000 AS n
)
SELECT p.priority, coalesce(r.due_at, t.now) AS head, coalesce(r.due_at, least(s.due_at, l.lease_until)) - t.now AS due_in,
       (SELECT count(*) FROM "public"."chanq__consumers" AS m WHERE m.queue = 'orders' AND m.until > (SELECT now FROM t)) AS consumers,
       uuid_send(r.id) AS head_id, r.lapses, e.due_at AS lost_at, uuid_send(e.id) AS lost_id
FROM t
CROSS JOIN (VALUES (2), (1), (0), (-1)) AS p (priority)
LEFT JOIN LATERAL (
  SELECT q.due_at, q.id, q.lapses FROM "public"."chanq_orders" AS q
  WHERE q.priority = p.priority AND q.due_at <= (SELECT now FROM t) AND (q.leased_by IS NOT NULL)::integer <> 1
  ORDER BY q.due_at, uuid_send(q.id) LIMIT 1) AS r ON true
LEFT JOIN LATERAL (
  SELECT f.due_at, f.id FROM (
    SELECT q.due_at, q.id, q.leased_by IS NOT NULL AS lost FROM "public"."chanq_orders" AS q
    WHERE q.priority = p.priority AND q.due_at <= (SELECT now FROM t) AND (q.lease_until > (SELECT now FROM t))::integer <> 1
    ORDER BY q.due_at, uuid_send(q.id) LIMIT 100 + 1) AS f
  WHERE f.lost LIMIT 1) AS e ON true
LEFT JOIN LATERAL (
  SELECT q.due_at FROM "public"."chanq_orders" AS q
  WHERE q.priority = p.priority AND q.due_at > (SELECT now FROM t)
  ORDER BY q.due_at LIMIT 1) AS s ON true
LEFT JOIN LATERAL (
  SELECT min(e.lease_until) AS lease_until FROM (SELECT f.lease_until FROM (
    SELECT q.lease_until FROM "public"."chanq_orders" AS q
    WHERE r.due_at IS NULL AND q.priority = p.priority AND q.due_at <= (SELECT now FROM t) AND (q.lease_until <= (SELECT now FROM t))::integer <> 1
    ORDER BY q.due_at LIMIT 10000) AS f LIMIT (SELECT n FROM t)) AS e) AS l ON true
WHERE NOT EXISTS (SELECT 1 FROM "public"."chanq__queues" WHERE name = 'orders' AND paused);
