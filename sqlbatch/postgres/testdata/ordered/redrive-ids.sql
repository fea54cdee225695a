WITH chosen AS MATERIALIZED (
  SELECT d.* FROM "public"."chanq_orders__dead" AS d
  WHERE d.id = ANY (ARRAY(SELECT a.id FROM unnest($1::uuid[]) AS a (id)))
    AND NOT EXISTS (SELECT 1 FROM "public"."chanq_orders" AS q WHERE q.id = d.id OFFSET 0)
    AND (d.dedup_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM "public"."chanq_orders" AS q WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL OFFSET 0))
  ORDER BY d.id
  FOR UPDATE OF d
),
moved AS (
  INSERT INTO "public"."chanq_orders" (id, priority, due_at, enqueued_at, fence, dedup_key, type, last_error, history, headers, body, slot, seq, order_key)
  SELECT id, priority, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c), enqueued_at, fence + 1, dedup_key, type, last_error, history, headers, body, slot, seq, order_key
  FROM chosen
  ON CONFLICT DO NOTHING
  RETURNING id
),
counted AS (
  UPDATE "public"."chanq__queues" SET redriven = redriven + 1 WHERE name = 'orders' AND EXISTS (SELECT 1 FROM moved)
)
DELETE FROM "public"."chanq_orders__dead"
WHERE id = ANY (ARRAY(SELECT id FROM moved))
RETURNING uuid_send(id), ended_at;
