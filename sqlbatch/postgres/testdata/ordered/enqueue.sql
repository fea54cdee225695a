INSERT INTO "public"."chanq_orders" (id, due_at, enqueued_at, expires_at, dedup_key, type, headers, body, slot, seq, fence, order_key)
SELECT r.id, t.now, t.now, t.now + r.ttl,
       CASE WHEN r.key > 0 THEN convert_from(substring(r.names FOR r.key), 'UTF8') END,
       CASE WHEN r.type > 0 THEN convert_from(substring(r.names FROM r.key + 1 FOR r.type), 'UTF8') END,
       CASE WHEN length(r.names) > r.key + r.type THEN substring(r.names FROM r.key + r.type + 1) END,
       r.body, r.slot, t.number * 1048576 + r.place, t.number * 1048576 + r.place, r.order_key
FROM (SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, (SELECT nextval('"public"."chanq_orders__seq"'::regclass) FROM (SELECT pg_advisory_xact_lock_shared(1667788399, hashtext('"public"."chanq_orders"')) AS held OFFSET 0) AS s WHERE s.held IS NOT NULL) AS number) AS t
CROSS JOIN (
  SELECT a.id, nullif(a.ttl, 0) AS ttl, coalesce(a.key & 255, 0) AS key, coalesce(a.key >> 8, 0) AS type, (a.shape >> 40)::smallint AS slot, coalesce(a.place, a.o) AS place,
         CASE WHEN a.names > 0 THEN substring($9::bytea FROM a.names_at FOR a.names) END AS names,
         CASE WHEN a.shape & (255::bigint << 32) <> 0 THEN convert_from(substring($10::bytea FROM a.at FOR (a.shape >> 32)::integer & 255), 'UTF8') END AS order_key,
         substring($10::bytea FROM a.at + ((a.shape >> 32)::integer & 255) FOR (a.shape & 4294967295)::integer) AS body
  FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::bigint[], $8::integer[]) WITH ORDINALITY
    AS a (id, ttl, key, names_at, names, at, shape, place, o)
  OFFSET 0
) AS r;
