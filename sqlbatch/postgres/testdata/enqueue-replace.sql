WITH r AS MATERIALIZED (
  SELECT * FROM (
SELECT r.id, r.priority, t.now + r.delay, t.now, t.now + r.ttl,
       CASE WHEN r.key > 0 THEN convert_from(substring(r.names FOR r.key), 'UTF8') END,
       CASE WHEN r.type > 0 THEN convert_from(substring(r.names FROM r.key + 1 FOR r.type), 'UTF8') END,
       CASE WHEN length(r.names) > r.key + r.type THEN substring(r.names FROM r.key + r.type + 1) END,
       r.body
FROM (SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now) AS t
CROSS JOIN (
  SELECT a.id, coalesce(a.priority, 0) AS priority, coalesce(a.delay, 0) AS delay, nullif(a.ttl, 0) AS ttl, coalesce(a.key & 255, 0) AS key, coalesce(a.key >> 8, 0) AS type,
         CASE WHEN a.names > 0 THEN substring($10::bytea FROM a.names_at FOR a.names) END AS names,
         substring($11::bytea FROM coalesce(a.body_at, 1) FOR coalesce(a.body, 0)) AS body
  FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[])
    AS a (id, priority, delay, ttl, key, names_at, names, body_at, body)
  OFFSET 0
) AS r) AS s (id, priority, due_at, enqueued_at, expires_at, dedup_key, type, headers, body)
  WHERE NOT EXISTS (SELECT 1 FROM "public"."chanq_orders" AS e WHERE e.id = s.id OFFSET 0)
),
leased AS MATERIALIZED (
  UPDATE "public"."chanq_orders" AS q SET dedup_key = NULL
  FROM r
  WHERE q.dedup_key = ANY (ARRAY[r.dedup_key]) AND q.dedup_key IS NOT NULL AND q.leased_by IS NOT NULL
  RETURNING q.id
)
INSERT INTO "public"."chanq_orders" AS q (id, priority, due_at, enqueued_at, expires_at, dedup_key, type, headers, body)
SELECT id, priority, due_at, enqueued_at, expires_at, dedup_key, type, headers, body FROM r WHERE (SELECT count(*) FROM leased) >= 0
ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL DO UPDATE SET fence = q.fence + 1, attempts = 0, lapses = 0, last_error = NULL, history = NULL, priority = excluded.priority,
  due_at = CASE WHEN q.enqueued_at + $12::bigint > excluded.enqueued_at THEN least(excluded.due_at, q.enqueued_at + $12::bigint)
                WHEN q.due_at > excluded.enqueued_at AND $12::bigint IS NOT NULL THEN excluded.enqueued_at
                WHEN q.due_at < excluded.enqueued_at AND q.priority <> excluded.priority THEN excluded.enqueued_at
                ELSE q.due_at END,
  expires_at = CASE WHEN $12::bigint IS NULL THEN greatest(excluded.expires_at, q.due_at + excluded.expires_at - excluded.enqueued_at) ELSE excluded.expires_at END,
  type = excluded.type, headers = excluded.headers, body = excluded.body
WHERE q.leased_by IS NULL
RETURNING uuid_send(q.id), decode(replace(q.dedup_key, chr(92), repeat(chr(92), 2)), 'escape');
