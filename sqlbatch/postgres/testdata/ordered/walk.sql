SELECT uuid_send(q.id) AS id, q.ended_at, q.type, convert_to(q.order_key, getdatabaseencoding()) AS order_key
FROM "public"."chanq_orders__dead" AS q
WHERE (q.ended_at, q.id) > ($2::bigint, $3::uuid) AND q.ended_at < $4::bigint
ORDER BY q.ended_at, q.id LIMIT $1::integer;
