WITH t AS MATERIALIZED (
  SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, $1::integer AS n, m.until
  FROM "public"."chanq_members" AS m
  WHERE m.id = $3::uuid AND m.until > (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AND NOT EXISTS (SELECT 1 FROM "public"."chanq_queues" WHERE name = 'orders' AND paused)
),
parts AS MATERIALIZED (
  SELECT a.o, a.slot, a.seq, a.most
  FROM unnest($6::smallint[], $7::bigint[], $8::bigint[], $9::integer[]) WITH ORDINALITY AS a (slot, fence, seq, most, o)
  JOIN "public"."chanq_slots" AS s ON s.queue = 'orders' AND s.slot = a.slot AND s.fence = a.fence AND s.member = $3::uuid
  WHERE EXISTS (SELECT 1 FROM t)
  ORDER BY a.o
),
walked AS MATERIALIZED (
  SELECT p.o, w.*
  FROM parts AS p
  CROSS JOIN LATERAL (
    SELECT l.* FROM (
      SELECT q.id, q.slot, q.seq, q.order_key, q.due_at, greatest(q.due_at, q.lease_until) - (SELECT now FROM t) AS wait,
             (q.due_at <= (SELECT now FROM t) AND q.lease_until <= (SELECT now FROM t) AND
              q.lapses + CASE WHEN q.leased_by IS NULL THEN 0 ELSE 1 END < $5::integer) AS claimable
      FROM "public"."chanq_orders" AS q
      WHERE (q.slot, q.seq) > (p.slot, p.seq) AND (q.slot, q.seq) <= (p.slot, 9223372036854775807) AND ((q.lease_until > (SELECT now FROM t) AND q.leased_by = $3::uuid AND $10::integer = 0))::integer <> 1
      ORDER BY q.slot, q.seq LIMIT 1000) AS l
    LIMIT p.most) AS w
  LIMIT (SELECT n FROM t)
),
chosen AS MATERIALIZED (
  SELECT w.id
  FROM walked AS w
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[w.id])
  WHERE w.claimable AND (q.due_at <= (SELECT now FROM t) AND q.lease_until <= (SELECT now FROM t) AND
              q.lapses + CASE WHEN q.leased_by IS NULL THEN 0 ELSE 1 END < $5::integer)
  FOR UPDATE OF q SKIP LOCKED
),
leased AS (
  UPDATE "public"."chanq_orders" AS q
  SET lease_until = least((SELECT now FROM t) + $2::bigint, (SELECT until FROM t)), fence = greatest(q.fence, (SELECT now << 20 FROM t)) + $4::bigint,
      attempts = q.attempts + 1, lapses = CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE least(q.lapses + 1, 32767) END, leased_by = $3::uuid
  FROM chosen AS c
  WHERE q.id = ANY (ARRAY[c.id])
  RETURNING q.id, q.priority, q.fence, q.attempts, q.lapses, (coalesce(q.expires_at <= (SELECT now FROM t), false))::integer AS expired,
            q.enqueued_at, q.due_at, q.expires_at, NULL::bytea AS dedup_key, NULL::bytea AS headers, NULL::bytea AS body, q.slot, q.seq, convert_to(q.order_key, getdatabaseencoding()) AS order_key
)
SELECT uuid_send(l.id) AS id, l.priority, l.fence, l.attempts, l.lapses, l.expired, l.enqueued_at, l.due_at, l.expires_at, l.dedup_key, l.headers, l.body, l.slot, l.seq, l.order_key, NULL::bigint AS wait
FROM leased AS l
UNION ALL
SELECT uuid_send(w.id), 0, 0, 0, 0, 0, 0, w.due_at, NULL, NULL, NULL, NULL, w.slot, w.seq, convert_to(w.order_key, getdatabaseencoding()), greatest(w.wait, 0)
FROM walked AS w
WHERE w.id NOT IN (SELECT l.id FROM leased AS l)
UNION ALL
SELECT NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, p.slot,
       CASE WHEN p.o > a.o THEN p.seq WHEN w.n >= p.most OR p.o = a.o THEN w.seq WHEN p.most <= 0 THEN p.seq ELSE 9223372036854775807 END, NULL, NULL
FROM parts AS p
LEFT JOIN (SELECT o, count(*) AS n, max(seq) AS seq FROM walked GROUP BY o) AS w ON w.o = p.o
CROSS JOIN (SELECT CASE WHEN count(*) >= (SELECT n FROM t) THEN coalesce(max(o), 0) END AS o FROM walked) AS a;
