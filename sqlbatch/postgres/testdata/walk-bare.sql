SELECT uuid_send(q.id) AS id, q.ended_at, q.type
FROM "public"."chanq_orders__dead" AS q
WHERE q.cause = $5::smallint AND q.fingerprint IS NULL AND (q.ended_at, q.id) > ($2::bigint, $3::uuid) AND q.ended_at < $4::bigint
ORDER BY q.cause, q.fingerprint, q.ended_at, q.id LIMIT $1::integer;
