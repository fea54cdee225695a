WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, $1::integer AS n, least((SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) + $2::bigint, m.until) AS ends, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) << 20 AS fence
  FROM "public"."chanq_members" AS m
  WHERE m.id = $3::uuid AND m.until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AND NOT EXISTS (SELECT 1 FROM "public"."chanq_queues" WHERE name = 'orders' AND paused)
),
parts AS MATERIALIZED (
  SELECT a.o, a.slot, a.seq, a.most
  FROM unnest($6::smallint[], $7::bigint[], $8::bigint[], $9::integer[]) WITH ORDINALITY AS a (slot, fence, seq, most, o)
  WHERE EXISTS (SELECT 1 FROM t)
    AND ((a.slot, a.fence) IN (SELECT s.slot, s.fence FROM "public"."chanq_slots" AS s WHERE s.queue = 'orders' AND s.member = $3::uuid)) IS TRUE
  ORDER BY a.o
),
walked AS MATERIALIZED (
  SELECT p.o, w.*
  FROM parts AS p
  CROSS JOIN LATERAL (
    SELECT l.* FROM (
      SELECT q.id, q.seq, CASE WHEN q.due_at <= (SELECT now FROM t) AND q.lease_until <= (SELECT now FROM t) AND q.lapses + CASE WHEN q.leased_by IS NULL THEN 0 ELSE 1 END < (SELECT $5::integer) THEN q.ctid END AS at
      FROM "public"."chanq_orders" AS q
      WHERE (q.slot, q.seq) > (p.slot, p.seq) AND q.slot <= p.slot AND ((q.lease_until > (SELECT now FROM t) AND q.leased_by IS NOT DISTINCT FROM $3::uuid AND $10::integer = 0))::integer <> 1
      ORDER BY q.slot, q.seq LIMIT 1000) AS l
    LIMIT p.most) AS w
  LIMIT (SELECT n FROM t)
),
seen AS MATERIALIZED (
  SELECT w.o, count(*) AS n, min(w.seq) AS first, max(w.seq) AS last FROM walked AS w GROUP BY w.o
),
total AS MATERIALIZED (
  SELECT coalesce(sum(s.n), 0) AS n, max(s.o) AS o, min(s.first) AS first, max(s.last) AS last FROM seen AS s
),
chosen AS MATERIALIZED (
  SELECT q.ctid AS at
  FROM "public"."chanq_orders" AS q
  WHERE q.ctid = ANY (CASE WHEN (SELECT n FROM t) < 0 THEN ARRAY[to_tsvector('pg_catalog.simple'::regconfig, (SELECT n FROM t)::text)::text::tid, to_tsvector('pg_catalog.simple'::regconfig, (SELECT n FROM t)::text)::text::tid, to_tsvector('pg_catalog.simple'::regconfig, (SELECT n FROM t)::text)::text::tid, to_tsvector('pg_catalog.simple'::regconfig, (SELECT n FROM t)::text)::text::tid, NULL] ELSE ARRAY(SELECT w.at FROM walked AS w WHERE w.at IS NOT NULL) END)
    AND q.seq + 0 >= (SELECT first FROM total) AND q.seq + 0 <= (SELECT last FROM total) AND q.due_at <= (SELECT now FROM t) AND q.lease_until <= (SELECT now FROM t) AND q.lapses + CASE WHEN q.leased_by IS NULL THEN 0 ELSE 1 END < (SELECT $5::integer)
  FOR UPDATE SKIP LOCKED
),
leased AS MATERIALIZED (
  UPDATE "public"."chanq_orders" AS q
  SET lease_until = (SELECT ends FROM t), fence = CASE WHEN q.fence > 8999998900488372224 THEN (SELECT fence FROM t) ELSE greatest(q.fence, (SELECT fence FROM t)) END + $4::bigint,
      attempts = least(q.attempts + 1, 2000000000), lapses = CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE least(q.lapses + 1, 32767) END, leased_by = $3::uuid
  WHERE q.ctid = ANY (CASE WHEN (SELECT n FROM t) < 0 THEN ARRAY[to_tsvector('pg_catalog.simple'::regconfig, (SELECT n FROM t)::text)::text::tid, to_tsvector('pg_catalog.simple'::regconfig, (SELECT n FROM t)::text)::text::tid, to_tsvector('pg_catalog.simple'::regconfig, (SELECT n FROM t)::text)::text::tid, to_tsvector('pg_catalog.simple'::regconfig, (SELECT n FROM t)::text)::text::tid, NULL] ELSE ARRAY(SELECT c.at FROM chosen AS c) END)
    AND q.seq + 0 >= (SELECT first FROM total) AND q.seq + 0 <= (SELECT last FROM total)
  RETURNING uuid_send(q.id) AS id, q.priority::integer AS priority, q.fence, q.attempts, q.lapses::integer AS lapses,
            coalesce(q.expires_at <= (SELECT now FROM t), false)::integer AS expired, q.enqueued_at, q.due_at, q.expires_at,
            decode(replace(q.dedup_key, chr(92), repeat(chr(92), 2)), 'escape') AS dedup_key, q.headers, q.body, q.slot::integer AS slot, q.seq, decode(replace(q.order_key, chr(92), repeat(chr(92), 2)), 'escape') AS order_key, NULL::bigint AS wait
)
SELECT * FROM leased
UNION ALL
SELECT uuid_send(q.id), 0, 0::bigint, 0, 0, 0, 0::bigint, q.due_at, NULL, NULL, NULL, NULL, q.slot, q.seq, convert_to(q.order_key, (SELECT getdatabaseencoding())),
       greatest(q.due_at - (SELECT now FROM t), q.lease_until - (SELECT now FROM t), 0)
FROM walked AS w
JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[w.id])
WHERE (SELECT count(*) FROM leased) < (SELECT n FROM total) AND uuid_send(w.id) NOT IN (SELECT l.id FROM leased AS l)
UNION ALL
SELECT NULL, 0, 0::bigint, 0, 0, 0, 0::bigint, 0::bigint, NULL, NULL, NULL, NULL, p.slot,
       CASE WHEN p.o > a.o THEN p.seq WHEN s.n >= p.most OR p.o = a.o THEN s.last WHEN p.most <= 0 THEN p.seq ELSE 9223372036854775807 END, NULL, NULL
FROM (SELECT CASE WHEN s.n >= t.n THEN coalesce(s.o, 0) END AS o FROM total AS s CROSS JOIN t) AS a
CROSS JOIN parts AS p
LEFT JOIN seen AS s ON s.o = p.o;
