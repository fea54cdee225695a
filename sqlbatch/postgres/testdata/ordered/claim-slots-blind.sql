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
      SELECT q.id, q.slot, q.seq
      FROM "public"."chanq_orders" AS q
      WHERE (q.slot, q.seq) > (p.slot, p.seq) AND (q.slot, q.seq) <= (p.slot, 9223372036854775807) AND ((q.lease_until > (SELECT now FROM t) AND q.leased_by = $3::uuid AND $10::integer = 0))::integer <> 1
      ORDER BY q.slot, q.seq LIMIT 1000) AS l
    LIMIT p.most) AS w
  LIMIT (SELECT n FROM t)
),
seen AS MATERIALIZED (
  SELECT w.o, w.slot, count(*) AS n, min(w.seq) AS first, max(w.seq) AS last FROM walked AS w GROUP BY w.o, w.slot
),
total AS MATERIALIZED (
  SELECT coalesce(sum(s.n), 0) AS n, max(s.o) AS o FROM seen AS s
),
chosen AS MATERIALIZED (
  SELECT c.id
  FROM seen AS s
  CROSS JOIN LATERAL (
    SELECT l.id FROM (
      SELECT q.id FROM "public"."chanq_orders" AS q
      WHERE (q.slot, q.seq) >= (s.slot, s.first) AND (q.slot, q.seq) <= (s.slot, s.last) AND (q.due_at > (SELECT now FROM t))::integer <> 1 AND (q.lease_until > (SELECT now FROM t))::integer <> 1 AND (q.lapses + CASE WHEN q.leased_by IS NULL THEN 0 ELSE 1 END >= (SELECT $5::integer))::integer <> 1
      ORDER BY q.slot, q.seq LIMIT 1000 FOR UPDATE SKIP LOCKED) AS l
    LIMIT s.n) AS c
  LIMIT (SELECT n FROM t)
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
SELECT uuid_send(q.id), 0, 0, 0, 0, 0, 0, q.due_at, NULL, NULL, NULL, NULL, q.slot, q.seq, convert_to(q.order_key, getdatabaseencoding()),
       greatest(q.due_at - (SELECT now FROM t), q.lease_until - (SELECT now FROM t), 0)
FROM walked AS w
JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[w.id])
WHERE (SELECT count(*) FROM leased) < (SELECT n FROM total) AND w.id NOT IN (SELECT l.id FROM leased AS l)
UNION ALL
SELECT NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, p.slot,
       CASE WHEN p.o > a.o THEN p.seq WHEN s.n >= p.most OR p.o = a.o THEN s.last WHEN p.most <= 0 THEN p.seq ELSE 9223372036854775807 END, NULL, NULL
FROM (SELECT CASE WHEN s.n >= t.n THEN coalesce(s.o, 0) END AS o FROM total AS s CROSS JOIN t) AS a
CROSS JOIN parts AS p
LEFT JOIN seen AS s ON s.o = p.o;
