WITH t AS MATERIALIZED (
  SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, $1::integer AS n
)
DELETE FROM "public"."chanq_orders"
WHERE id = ANY (ARRAY(
  SELECT * FROM (
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" WHERE priority = 2 AND due_at <= (SELECT now FROM t) AND (lease_until <= (SELECT now FROM t))::integer <> 1 AND (fence - 1) >> 20 < (SELECT $2::bigint)
      ORDER BY due_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l1 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" WHERE priority = 1 AND due_at <= (SELECT now FROM t) AND (lease_until <= (SELECT now FROM t))::integer <> 1 AND (fence - 1) >> 20 < (SELECT $2::bigint)
      ORDER BY due_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l2 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" WHERE priority = 0 AND due_at <= (SELECT now FROM t) AND (lease_until <= (SELECT now FROM t))::integer <> 1 AND (fence - 1) >> 20 < (SELECT $2::bigint)
      ORDER BY due_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l3 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" WHERE priority = -1 AND due_at <= (SELECT now FROM t) AND (lease_until <= (SELECT now FROM t))::integer <> 1 AND (fence - 1) >> 20 < (SELECT $2::bigint)
      ORDER BY due_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l4 LIMIT (SELECT n FROM t))
  ) AS l
  LIMIT (SELECT n FROM t)))
RETURNING uuid_send(id), 0;
