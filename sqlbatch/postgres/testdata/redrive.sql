WITH chosen AS MATERIALIZED (
  SELECT d.* FROM "public"."chanq_orders__dead" AS d
  WHERE (d.ended_at, d.id) > ($2::bigint, $3::uuid) AND d.ended_at < (SELECT $4::bigint)
    AND NOT EXISTS (SELECT 1 FROM "public"."chanq_orders" AS q WHERE q.id = d.id OFFSET 0)
    AND (d.dedup_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM "public"."chanq_orders" AS q WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL OFFSET 0))
    AND (d.dedup_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM "public"."chanq_orders__dead" AS e
      WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id AND e.ended_at < (SELECT $4::bigint) OFFSET 0))
  ORDER BY d.ended_at, d.id LIMIT $1::integer FOR UPDATE OF d SKIP LOCKED
),
moved AS (
  INSERT INTO "public"."chanq_orders" (id, priority, due_at, enqueued_at, fence, dedup_key, type, last_error, history, headers, body)
  SELECT id, priority, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c), enqueued_at, fence + 1, dedup_key, type, last_error, history, headers, body
  FROM chosen
  ON CONFLICT DO NOTHING
  RETURNING id
)
DELETE FROM "public"."chanq_orders__dead"
WHERE id = ANY (ARRAY(SELECT id FROM moved))
RETURNING uuid_send(id), ended_at;
