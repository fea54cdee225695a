WITH came AS MATERIALIZED (
  SELECT 1 AS one WHERE NOT EXISTS (SELECT FROM "public"."chanq__consumers" AS m WHERE m.id = $1::uuid AND m.until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c))
),
here AS (
  INSERT INTO "public"."chanq__consumers" AS m (id, since, until, heard_at, process, queue, name, host)
  SELECT $1::uuid, t.now, t.now + $2::bigint, t.now, $3::bigint, 'orders', convert_from($4::bytea, 'UTF8'), convert_from($5::bytea, 'UTF8')
  FROM (SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now) AS t
  ON CONFLICT (id) DO UPDATE SET
    until = greatest(m.until, excluded.until), heard_at = excluded.heard_at, process = excluded.process, queue = excluded.queue, name = excluded.name, host = excluded.host
  RETURNING m.id
)
DELETE FROM "public"."chanq__consumers"
WHERE id = ANY (ARRAY(
  SELECT m.id FROM "public"."chanq__consumers" AS m
  WHERE EXISTS (SELECT FROM came) AND m.until < (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) - 86400000 AND m.id <> ALL (ARRAY(SELECT id FROM here))
  LIMIT 1000 FOR UPDATE SKIP LOCKED));
