WITH t AS MATERIALIZED (SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now)
SELECT CASE WHEN q.visible_at <= (SELECT now FROM t) THEN 'ready' WHEN q.leased_by IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.visible_at AS due_at, q.leased_by, q.dedup_key, q.last_error, q.headers, q.body
FROM "public"."chanq_orders" AS q WHERE q.id = $1::uuid
UNION ALL
SELECT 'dead' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.ended_at AS due_at, NULL::text AS leased_by, q.dedup_key, q.last_error, q.headers, q.body
FROM "public"."chanq_orders_dead" AS q WHERE q.id = $1::uuid
UNION ALL
SELECT 'done' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.ended_at AS due_at, NULL::text AS leased_by, q.dedup_key, q.last_error, q.headers, q.body
FROM "public"."chanq_orders_done" AS q WHERE q.id = $1::uuid;
