DELETE FROM "public"."chanq_orders__done"
WHERE id = ANY (ARRAY(
  SELECT id FROM "public"."chanq_orders__done" WHERE (ended_at, id) > ($2::bigint, $3::uuid) AND ended_at < (SELECT $4::bigint)
  ORDER BY ended_at, id LIMIT $1::integer FOR UPDATE SKIP LOCKED))
RETURNING uuid_send(id), ended_at;
