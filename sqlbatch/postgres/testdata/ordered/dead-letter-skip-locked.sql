WITH gone AS (
  DELETE FROM "public"."chanq_orders" AS q
  USING (
  SELECT a.* FROM (
  SELECT a.id, a.above, $2::bigint + coalesce(a.above, 0) AS stored, a.delivery, a.ended, a.took, a.fingerprint, CASE WHEN a.bytes > 0 THEN convert_from(substring($10::bytea FROM a.starts FOR a.bytes), 'UTF8') END AS error
  FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::integer[]), (SELECT $6::bigint[]), (SELECT $7::bigint[]), (SELECT $8::integer[]), (SELECT $9::integer[])) AS a (id, above, delivery, ended, took, fingerprint, starts, bytes)
) AS a
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  FOR UPDATE OF q SKIP LOCKED
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  RETURNING q.id, q.priority, q.enqueued_at, (coalesce(a.ended, 0) >> 1)::smallint AS cause, a.fingerprint, q.fence, CASE WHEN q.fence > 8999998900488372224 THEN a.delivery ELSE greatest(q.fence, a.delivery) END + 1 AS after, least(q.attempts + CASE WHEN q.leased_by IS NULL THEN 1 ELSE 0 END, 2000000000) - (coalesce(a.ended, 0) & 1) AS attempts, q.dedup_key, q.type, q.headers, q.body,
            coalesce(a.error, q.last_error) AS last_error, q.history, q.leased_by, a.took, a.error, coalesce(a.ended, 0) & 1 AS uncounted, q.slot, q.seq, q.order_key
),
dead AS (
  INSERT INTO "public"."chanq_orders__dead" AS d (id, priority, enqueued_at, ended_at, cause, fingerprint, fence, attempts, dedup_key, type, last_error, history, headers, body, slot, seq, order_key)
  SELECT id, priority, enqueued_at, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c), cause, fingerprint, after, attempts, dedup_key, type, last_error, CASE WHEN q.uncounted = 1 THEN q.history ELSE left((SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) || ' ' || (coalesce(q.took, 0)) || ' ' || coalesce(left((SELECT m.name FROM "public"."chanq__slots" AS s JOIN "public"."chanq__consumers" AS m ON m.id = coalesce(q.leased_by, s.consumer) WHERE s.queue = 'orders' AND s.slot = q.slot), 60), '') || chr(10) || coalesce(left(q.error, 300), '') || chr(30) || coalesce(q.history, ''), 2000) END, headers, body, slot, seq, order_key
  FROM gone AS q
  ON CONFLICT (id) DO UPDATE SET
  priority = excluded.priority, enqueued_at = excluded.enqueued_at, ended_at = excluded.ended_at, fence = excluded.fence,
  attempts = excluded.attempts, dedup_key = excluded.dedup_key, type = excluded.type, last_error = excluded.last_error, history = excluded.history,
  headers = excluded.headers, body = excluded.body,
  slot = excluded.slot, seq = excluded.seq, order_key = excluded.order_key, cause = excluded.cause, fingerprint = excluded.fingerprint, noticed_at = 0
)
SELECT uuid_send(id), fence FROM gone;
