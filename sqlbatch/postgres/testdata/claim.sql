WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now,
         CASE WHEN EXISTS (SELECT 1 FROM "public"."chanq__queues" WHERE name = 'orders' AND paused) THEN 0 ELSE $1::integer END AS n
),
chosen AS MATERIALIZED (
  SELECT * FROM (
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" AS q
      WHERE priority = 2 AND (due_at, uuid_send(id)) >= (least($9::bigint, (SELECT now FROM t) - 250), CASE WHEN $9::bigint <= (SELECT now FROM t) - 250 THEN $13::bytea ELSE ''::bytea END) AND due_at <= (SELECT now FROM t)
        AND (leased_by IS NOT NULL)::integer <> 1
      ORDER BY due_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l1 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" AS q
      WHERE priority = 1 AND (due_at, uuid_send(id)) >= (least($8::bigint, (SELECT now FROM t) - 250), CASE WHEN $8::bigint <= (SELECT now FROM t) - 250 THEN $12::bytea ELSE ''::bytea END) AND due_at <= (SELECT now FROM t)
        AND (leased_by IS NOT NULL)::integer <> 1
      ORDER BY due_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l2 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" AS q
      WHERE priority = 0 AND (due_at, uuid_send(id)) >= (least($7::bigint, (SELECT now FROM t) - 250), CASE WHEN $7::bigint <= (SELECT now FROM t) - 250 THEN $11::bytea ELSE ''::bytea END) AND due_at <= (SELECT now FROM t)
        AND (leased_by IS NOT NULL)::integer <> 1
      ORDER BY due_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l3 LIMIT (SELECT n FROM t))
    UNION ALL
    (SELECT * FROM (
      SELECT id FROM "public"."chanq_orders" AS q
      WHERE priority = -1 AND (due_at, uuid_send(id)) >= (least($6::bigint, (SELECT now FROM t) - 250), CASE WHEN $6::bigint <= (SELECT now FROM t) - 250 THEN $10::bytea ELSE ''::bytea END) AND due_at <= (SELECT now FROM t)
        AND (leased_by IS NOT NULL)::integer <> 1
      ORDER BY due_at, uuid_send(id) LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l4 LIMIT (SELECT n FROM t))
  ) AS l
  LIMIT (SELECT n FROM t)
)
UPDATE "public"."chanq_orders" AS q
SET lease_until = (SELECT now FROM t) + $2::bigint, fence = CASE WHEN q.fence > 8999998900488372224 THEN (SELECT now << 20 FROM t) ELSE greatest(q.fence, (SELECT now << 20 FROM t)) END + $4::bigint,
    attempts = least(q.attempts + 1, 2000000000), leased_by = $3::uuid
FROM chosen AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING uuid_send(q.id), q.priority, q.fence, q.attempts, q.lapses, (coalesce(q.expires_at <= (SELECT now FROM t), false))::integer AS expired,
          q.enqueued_at, q.due_at, q.expires_at, CASE WHEN $5::integer >= 0 THEN decode(replace(q.dedup_key, chr(92), repeat(chr(92), 2)), 'escape') END AS dedup_key, CASE WHEN $5::integer >= 0 THEN q.type END AS type, CASE WHEN $5::integer >= 0 THEN q.headers END AS headers,
          CASE WHEN octet_length(q.body) <= $5::integer THEN q.body END AS body, octet_length(q.body) AS size;
