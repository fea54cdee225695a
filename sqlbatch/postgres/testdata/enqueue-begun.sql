INSERT INTO "public"."chanq_orders" (id, priority, due_at, enqueued_at, expires_at, dedup_key, type, headers, body)
SELECT r.id, r.priority, t.now + r.delay, t.now, t.now + r.ttl,
       CASE WHEN r.key > 0 THEN convert_from(substring(r.names FOR r.key), 'UTF8') END,
       CASE WHEN r.type > 0 THEN convert_from(substring(r.names FROM r.key + 1 FOR r.type), 'UTF8') END,
       CASE WHEN length(r.names) > r.key + r.type THEN substring(r.names FROM r.key + r.type + 1) END,
       r.body
FROM (SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM transaction_timestamp()) * 1000)::bigint AS v) AS c) AS now) AS t
CROSS JOIN (
  SELECT a.id, coalesce(a.priority, 0) AS priority, coalesce(a.delay, 0) AS delay, nullif(a.ttl, 0) AS ttl, coalesce(a.key & 255, 0) AS key, coalesce(a.key >> 8, 0) AS type,
         CASE WHEN a.names > 0 THEN substring($10::bytea FROM a.names_at FOR a.names) END AS names,
         substring($11::bytea FROM coalesce(a.body_at, 1) FOR coalesce(a.body, 0)) AS body
  FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[])
    AS a (id, priority, delay, ttl, key, names_at, names, body_at, body)
  OFFSET 0
) AS r;
