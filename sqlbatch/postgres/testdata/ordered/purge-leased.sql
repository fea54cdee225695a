WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::integer AS n
)
DELETE FROM "public"."chanq_orders"
WHERE id = ANY (ARRAY(
  SELECT f.id FROM (
    SELECT q.id FROM "public"."chanq_orders" AS q
    WHERE (q.seq, q.slot) > ($2::bigint, 32767::smallint) AND q.seq <= (SELECT $4::bigint) AND (q.due_at > (SELECT now FROM t))::integer <> 1 AND (q.lease_until <= (SELECT now FROM t))::integer <> 1 AND ((q.fence - 1) >> 20 >= (SELECT $3::bigint))::integer <> 1
    ORDER BY q.seq LIMIT 1000 FOR UPDATE SKIP LOCKED) AS f
  LIMIT (SELECT n FROM t)))
RETURNING uuid_send(id), seq;
