WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::integer AS n
),
chosen AS MATERIALIZED (
  SELECT f.id FROM (
    SELECT q.id FROM "public"."chanq_orders" AS q
    WHERE (q.seq, q.slot) > ($2::bigint, 32767::smallint) AND q.seq <= (SELECT $3::bigint) AND (q.due_at <= (SELECT now FROM t))::integer <> 1 AND (q.lease_until > (SELECT now FROM t))::integer <> 1 AND q.slot BETWEEN $6::smallint AND $7::smallint AND ($4::bytea <> ''::bytea AND convert_to(q.type, getdatabaseencoding()) IS DISTINCT FROM $4::bytea)::integer <> 1 AND ($5::bytea <> ''::bytea AND convert_to(q.order_key, getdatabaseencoding()) IS DISTINCT FROM $5::bytea)::integer <> 1
    ORDER BY q.seq LIMIT 1000) AS f
  LIMIT (SELECT n FROM t)
)
SELECT CASE WHEN q.lease_until > (SELECT now FROM t) THEN 'leased' WHEN q.due_at <= (SELECT now FROM t) THEN 'ready' ELSE 'scheduled' END AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.due_at,
  CASE WHEN q.leased_by IS NOT NULL THEN q.lease_until END AS lease_until, NULL::bigint AS ended_at, q.expires_at, uuid_send(q.leased_by) AS leased_by,
  (SELECT convert_to(m.name, getdatabaseencoding()) FROM "public"."chanq__consumers" AS m WHERE m.id = q.leased_by) AS holder,
  convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, q.type, convert_to(left(q.last_error, 2000), getdatabaseencoding()) AS last_error, convert_to(left(q.history, 2000), getdatabaseencoding()) AS history, NULL::smallint AS cause, NULL::bigint AS fingerprint, NULL::bytea AS headers, octet_length(q.body)::bigint AS body, q.slot, q.seq, convert_to(q.order_key, getdatabaseencoding()) AS order_key
FROM chosen AS c
JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[c.id])
ORDER BY q.seq;
