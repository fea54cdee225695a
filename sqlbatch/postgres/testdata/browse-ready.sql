SELECT state, id, priority, fence, attempts, enqueued_at, due_at, lease_until, ended_at, expires_at, leased_by, holder, dedup_key, type, last_error, history, cause, fingerprint, headers, body
FROM (SELECT b.*, row_number() OVER () AS place FROM (
WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::integer AS n
),
chosen AS MATERIALIZED (
  SELECT * FROM (
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" WHERE priority = 2 AND due_at <= (SELECT now FROM t) AND (due_at, uuid_send(id)) > (CASE WHEN 0 = $2::integer THEN $3::bigint WHEN 0 > $2::integer THEN -1 ELSE 9223372036854775807 END, uuid_send($4::uuid))
      ORDER BY due_at, uuid_send(id) LIMIT 1000) AS l1 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" WHERE priority = 1 AND due_at <= (SELECT now FROM t) AND (due_at, uuid_send(id)) > (CASE WHEN 1 = $2::integer THEN $3::bigint WHEN 1 > $2::integer THEN -1 ELSE 9223372036854775807 END, uuid_send($4::uuid))
      ORDER BY due_at, uuid_send(id) LIMIT 1000) AS l2 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" WHERE priority = 0 AND due_at <= (SELECT now FROM t) AND (due_at, uuid_send(id)) > (CASE WHEN 2 = $2::integer THEN $3::bigint WHEN 2 > $2::integer THEN -1 ELSE 9223372036854775807 END, uuid_send($4::uuid))
      ORDER BY due_at, uuid_send(id) LIMIT 1000) AS l3 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" WHERE priority = -1 AND due_at <= (SELECT now FROM t) AND (due_at, uuid_send(id)) > (CASE WHEN 3 = $2::integer THEN $3::bigint WHEN 3 > $2::integer THEN -1 ELSE 9223372036854775807 END, uuid_send($4::uuid))
      ORDER BY due_at, uuid_send(id) LIMIT 1000) AS l4 LIMIT (SELECT n FROM t))
  ) AS l
  LIMIT (SELECT n FROM t)
)
SELECT CASE WHEN q.lease_until > (SELECT now FROM t) THEN 'leased' WHEN q.due_at <= (SELECT now FROM t) THEN 'ready' ELSE 'scheduled' END AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.due_at,
  CASE WHEN q.leased_by IS NOT NULL THEN q.lease_until END AS lease_until, NULL::bigint AS ended_at, q.expires_at, uuid_send(q.leased_by) AS leased_by,
  (SELECT convert_to(m.name, getdatabaseencoding()) FROM "public"."chanq__consumers" AS m WHERE m.id = q.leased_by) AS holder,
  convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, q.type, convert_to(left(q.last_error, 2000), getdatabaseencoding()) AS last_error, convert_to(left(q.history, 2000), getdatabaseencoding()) AS history, NULL::smallint AS cause, NULL::bigint AS fingerprint, NULL::bytea AS headers, octet_length(q.body)::bigint AS body
FROM chosen AS c
JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[c.id])
ORDER BY q.priority DESC, q.due_at, q.id
) AS b) AS b
WHERE b.place = $1::integer OR ($5::bytea IN (''::bytea, convert_to(b.type, getdatabaseencoding()))) IS TRUE AND ($6::integer IN (0, b.cause)) IS TRUE
  AND coalesce(coalesce(b.fingerprint, 0) = $7::bigint, true)
ORDER BY b.place LIMIT $8::integer;
