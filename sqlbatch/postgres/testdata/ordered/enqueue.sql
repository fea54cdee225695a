INSERT INTO "public"."chanq_orders" (id, due_at, enqueued_at, expires_at, dedup_key, headers, body, slot, seq, order_key)
SELECT r.id, t.now, t.now, t.now + r.ttl,
       CASE WHEN r.key > 0 THEN convert_from(substring(r.names FOR r.key), 'UTF8') END,
       CASE WHEN length(r.names) > r.key + r.line THEN substring(r.names FROM r.key + r.line + 1) END,
       r.body, r.slot, (t.number << 20) + r.place,
       CASE WHEN r.line > 0 THEN convert_from(substring(r.names FROM r.key + 1 FOR r.line), 'UTF8') END
FROM (SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, (SELECT nextval('"public"."chanq_orders_seq"'::regclass) FROM (SELECT pg_advisory_xact_lock_shared(1667788399, hashtext('"public"."chanq_orders"')) AS held OFFSET 0) AS s WHERE s.held IS NOT NULL) AS number) AS t
CROSS JOIN (
  SELECT a.id, nullif(a.ttl, 0) AS ttl, coalesce(a.key, 0) AS key, coalesce(a.line, 0) AS line, coalesce(a.slot, 0) AS slot, coalesce(a.place, a.o) AS place,
         CASE WHEN a.names > 0 THEN substring($10::bytea FROM a.names_at FOR a.names) END AS names,
         substring($11::bytea FROM coalesce(a.body_at, 1) FOR coalesce(a.body, 0)) AS body
  FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[],
              $12::smallint[], $13::integer[], $14::integer[]) WITH ORDINALITY
    AS a (id, priority, delay, ttl, key, names_at, names, body_at, body, slot, line, place, o)
  OFFSET 0
) AS r;
