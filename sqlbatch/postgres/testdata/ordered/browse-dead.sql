SELECT state, id, priority, fence, attempts, enqueued_at, due_at, lease_until, ended_at, expires_at, leased_by, holder, dedup_key, type, last_error, history, cause, fingerprint, headers, body, slot, seq, order_key
FROM (SELECT b.*, row_number() OVER () AS place FROM (
SELECT 'dead' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, NULL::bigint AS due_at,
  NULL::bigint AS lease_until, q.ended_at, NULL::bigint AS expires_at, NULL::bytea AS leased_by, NULL::bytea AS holder, convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, q.type, convert_to(left(q.last_error, 2000), getdatabaseencoding()) AS last_error, convert_to(left(q.history, 2000), getdatabaseencoding()) AS history, q.cause, q.fingerprint, NULL::bytea AS headers, octet_length(q.body)::bigint AS body, q.slot, q.seq, convert_to(q.order_key, getdatabaseencoding()) AS order_key
FROM "public"."chanq_orders__dead" AS q
WHERE (q.ended_at, q.id) < ($2::bigint, $3::uuid)
ORDER BY q.ended_at DESC, q.id DESC LIMIT $1::integer
) AS b) AS b
WHERE b.place = $1::integer OR ($4::bytea IN (''::bytea, convert_to(b.type, getdatabaseencoding()))) IS TRUE AND ($5::integer IN (0, b.cause)) IS TRUE
  AND coalesce(coalesce(b.fingerprint, 0) = $6::bigint, true) AND ($8::bytea IN (''::bytea, b.order_key)) IS TRUE
ORDER BY b.place LIMIT $7::integer;
