WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::integer AS n
)
DELETE FROM "public"."chanq_orders"
WHERE id = ANY (ARRAY(
  SELECT id FROM (
    SELECT id FROM "public"."chanq_orders"
    WHERE (due_at, uuid_send(id)) > (greatest($2::bigint, (SELECT now FROM t)), uuid_send($3::uuid)) AND priority = $5::integer AND due_at > (SELECT now FROM t) AND (lease_until > (SELECT now FROM t))::integer <> 1 AND enqueued_at < (SELECT $4::bigint)
    ORDER BY due_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
  LIMIT (SELECT n FROM t)))
RETURNING uuid_send(id), due_at;
