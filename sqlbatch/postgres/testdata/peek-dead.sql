SELECT 'dead' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, NULL::bigint AS due_at,
  NULL::bigint AS lease_until, q.ended_at, NULL::bigint AS expires_at, NULL::bytea AS leased_by, NULL::bytea AS holder, convert_to(q.dedup_key, getdatabaseencoding()) AS dedup_key, q.type, convert_to(left(q.last_error, 2000), getdatabaseencoding()) AS last_error, convert_to(left(q.history, 2000), getdatabaseencoding()) AS history, q.cause, q.fingerprint, q.headers, q.body
FROM "public"."chanq_orders__dead" AS q
WHERE (q.ended_at, q.id) < ($2::bigint, $3::uuid)
ORDER BY q.ended_at DESC, q.id DESC LIMIT $1::integer;
