WITH t AS MATERIALIZED (SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now)
SELECT CASE WHEN q.visible_at <= (SELECT now FROM t) THEN 'ready' WHEN q.leased_by IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.visible_at AS due_at, q.expires_at, uuid_send(q.leased_by) AS leased_by,
  (SELECT convert_to(m.name, getdatabaseencoding()) FROM "public"."chanq_members" AS m WHERE m.id = q.leased_by) AS holder,
  convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, convert_to(q.last_error, getdatabaseencoding()) AS last_error, q.headers, q.body
FROM "public"."chanq_orders" AS q WHERE q.id = $1::uuid
UNION ALL
SELECT 'dead' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.ended_at AS due_at, NULL::bigint AS expires_at,
  NULL::bytea AS leased_by, NULL::bytea AS holder, convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, convert_to(q.last_error, getdatabaseencoding()) AS last_error, q.headers, q.body
FROM "public"."chanq_orders_dead" AS q WHERE q.id = $1::uuid
UNION ALL
SELECT 'done' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.ended_at AS due_at, NULL::bigint AS expires_at,
  NULL::bytea AS leased_by, NULL::bytea AS holder, convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, convert_to(q.last_error, getdatabaseencoding()) AS last_error, q.headers, q.body
FROM "public"."chanq_orders_done" AS q WHERE q.id = $1::uuid;
