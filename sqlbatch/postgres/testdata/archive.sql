WITH gone AS (
  DELETE FROM "public"."chanq_orders" AS q
  USING (
  SELECT a.id, a.above
  FROM unnest((SELECT CASE WHEN set_config('lock_timeout', w.ms, true) IS NOT NULL THEN $1::uuid[] END FROM (VALUES ('100')) AS w (ms)), (SELECT $3::bigint[])) AS a (id, above)
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  RETURNING q.id, q.priority, q.enqueued_at, q.fence, q.attempts, q.dedup_key, q.type, q.last_error, q.history, q.headers, q.body
)
INSERT INTO "public"."chanq_orders__done" AS d (id, priority, enqueued_at, ended_at, outcome, fence, attempts, dedup_key, type, last_error, history, headers, body)
SELECT id, priority, enqueued_at, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c), 1, fence, attempts, dedup_key, type, last_error, history, headers, body
FROM gone
ON CONFLICT (id) DO UPDATE SET
  priority = excluded.priority, enqueued_at = excluded.enqueued_at, ended_at = excluded.ended_at, fence = excluded.fence,
  attempts = excluded.attempts, dedup_key = excluded.dedup_key, type = excluded.type, last_error = excluded.last_error, history = excluded.history,
  headers = excluded.headers, body = excluded.body, outcome = excluded.outcome
RETURNING uuid_send(d.id), d.fence;
