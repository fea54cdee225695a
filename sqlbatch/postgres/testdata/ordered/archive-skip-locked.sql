WITH gone AS (
  DELETE FROM "public"."chanq_orders" AS q
  USING (
  SELECT a.* FROM (
  SELECT a.id, a.above
  FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[])) AS a (id, above)
) AS a
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  FOR UPDATE OF q SKIP LOCKED
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  RETURNING q.id, q.priority, q.enqueued_at, q.fence, least(q.attempts + CASE WHEN q.leased_by IS NULL THEN 1 ELSE 0 END, 2000000000) AS attempts, q.dedup_key, q.type, q.last_error, q.history, q.headers, q.body, q.slot, q.seq, q.order_key
)
INSERT INTO "public"."chanq_orders__done" AS d (id, priority, enqueued_at, ended_at, outcome, fence, attempts, dedup_key, type, last_error, history, headers, body, slot, seq, order_key)
SELECT id, priority, enqueued_at, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c), 1, fence, attempts, dedup_key, type, last_error, history, headers, body, slot, seq, order_key
FROM gone
ON CONFLICT (id) DO UPDATE SET
  priority = excluded.priority, enqueued_at = excluded.enqueued_at, ended_at = excluded.ended_at, fence = excluded.fence,
  attempts = excluded.attempts, dedup_key = excluded.dedup_key, type = excluded.type, last_error = excluded.last_error, history = excluded.history,
  headers = excluded.headers, body = excluded.body,
  slot = excluded.slot, seq = excluded.seq, order_key = excluded.order_key, outcome = excluded.outcome
RETURNING uuid_send(d.id), d.fence;
