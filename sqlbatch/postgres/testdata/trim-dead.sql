DELETE FROM "public"."chanq_orders__dead"
WHERE id = ANY (ARRAY(
  SELECT id FROM "public"."chanq_orders__dead" WHERE ended_at >= (SELECT $3::bigint) AND ended_at < (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) - $1::bigint
  ORDER BY ended_at, id LIMIT $2::integer FOR UPDATE SKIP LOCKED))
RETURNING uuid_send(id), ended_at;
