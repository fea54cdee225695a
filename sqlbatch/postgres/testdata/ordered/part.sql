WITH t AS MATERIALIZED (SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now)
SELECT CASE WHEN q.lease_until > (SELECT now FROM t) THEN 'leased' WHEN q.due_at <= (SELECT now FROM t) THEN 'ready' ELSE 'scheduled' END AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.due_at,
  CASE WHEN q.leased_by IS NOT NULL THEN q.lease_until END AS lease_until, NULL::bigint AS ended_at, q.expires_at, uuid_send(q.leased_by) AS leased_by,
  (SELECT convert_to(m.name, getdatabaseencoding()) FROM "public"."chanq__consumers" AS m WHERE m.id = q.leased_by) AS holder,
  convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, q.type, convert_to(left(q.last_error, 2000), getdatabaseencoding()) AS last_error, convert_to(left(q.history, 2000), getdatabaseencoding()) AS history, NULL::smallint AS cause, NULL::bigint AS fingerprint, q.headers, CASE WHEN $3::integer > 0 THEN substring(q.body FROM $2::integer + 1 FOR $3::integer) END AS body, octet_length(q.body)::bigint AS size, q.slot, q.seq, convert_to(q.order_key, getdatabaseencoding()) AS order_key
FROM "public"."chanq_orders" AS q WHERE q.id = $1::uuid
UNION ALL
SELECT 'dead' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, NULL::bigint AS due_at,
  NULL::bigint AS lease_until, q.ended_at, NULL::bigint AS expires_at, NULL::bytea AS leased_by, NULL::bytea AS holder, convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, q.type, convert_to(left(q.last_error, 2000), getdatabaseencoding()) AS last_error, convert_to(left(q.history, 2000), getdatabaseencoding()) AS history, q.cause, q.fingerprint, q.headers, CASE WHEN $3::integer > 0 THEN substring(q.body FROM $2::integer + 1 FOR $3::integer) END AS body, octet_length(q.body)::bigint AS size, q.slot, q.seq, convert_to(q.order_key, getdatabaseencoding()) AS order_key
FROM "public"."chanq_orders__dead" AS q WHERE q.id = $1::uuid
UNION ALL
SELECT 'done' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, NULL::bigint AS due_at,
  NULL::bigint AS lease_until, q.ended_at, NULL::bigint AS expires_at, NULL::bytea AS leased_by, NULL::bytea AS holder, convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, q.type, convert_to(left(q.last_error, 2000), getdatabaseencoding()) AS last_error, convert_to(left(q.history, 2000), getdatabaseencoding()) AS history, NULL::smallint AS cause, NULL::bigint AS fingerprint, q.headers, CASE WHEN $3::integer > 0 THEN substring(q.body FROM $2::integer + 1 FOR $3::integer) END AS body, octet_length(q.body)::bigint AS size, q.slot, q.seq, convert_to(q.order_key, getdatabaseencoding()) AS order_key
FROM "public"."chanq_orders__done" AS q WHERE q.id = $1::uuid;
