WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::integer AS n
)
DELETE FROM "public"."chanq_orders"
WHERE id = ANY (ARRAY(
  SELECT q.id FROM "public"."chanq_orders" AS q
  WHERE q.id = ANY (ARRAY(
  SELECT f.id FROM "public"."chanq_slots" AS s
  CROSS JOIN LATERAL (
    SELECT e.* FROM (
      SELECT q.id, q.seq FROM "public"."chanq_orders" AS q
      WHERE (q.slot, q.seq) > (s.slot, $2::bigint) AND q.slot <= s.slot AND (q.slot, q.seq) <= (s.slot, $4::bigint) AND (q.due_at > (SELECT now FROM t))::integer <> 1 AND (q.lease_until <= (SELECT now FROM t))::integer <> 1 AND ((q.fence - 1) >> 20 >= (SELECT $3::bigint))::integer <> 1
      ORDER BY q.slot, q.seq LIMIT 1000) AS e
    LIMIT (SELECT n FROM t)) AS f
  WHERE s.queue = 'orders'
  ORDER BY f.seq LIMIT (SELECT n FROM t))) AND (q.due_at > (SELECT now FROM t))::integer <> 1 AND (q.lease_until <= (SELECT now FROM t))::integer <> 1 AND ((q.fence - 1) >> 20 >= (SELECT $3::bigint))::integer <> 1 FOR UPDATE SKIP LOCKED))
RETURNING uuid_send(id), seq;
