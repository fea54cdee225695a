WITH gone AS (
  DELETE FROM "public"."chanq_orders" AS q
  USING (
  SELECT a.* FROM (
  SELECT a.id, a.above, a.ended, a.took, a.fingerprint, CASE WHEN a.bytes > 0 THEN convert_from(substring($9::bytea FROM a.starts FOR a.bytes), 'UTF8') END AS error
  FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[]), (SELECT $4::integer[]), (SELECT $5::bigint[]), (SELECT $6::bigint[]), (SELECT $7::integer[]), (SELECT $8::integer[])) AS a (id, above, ended, took, fingerprint, starts, bytes)
) AS a
  JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  FOR UPDATE OF q SKIP LOCKED
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
  RETURNING q.id, q.priority, q.enqueued_at, (coalesce(a.ended, 0) >> 1)::smallint AS cause, a.fingerprint, q.fence, q.attempts - (coalesce(a.ended, 0) & 1) AS attempts, q.dedup_key, q.type, q.headers, q.body,
            coalesce(a.error, q.last_error) AS last_error, q.history, q.leased_by, a.took, a.error, coalesce(a.ended, 0) & 1 AS uncounted
)
INSERT INTO "public"."chanq_orders__dead" AS d (id, priority, enqueued_at, ended_at, cause, fingerprint, fence, attempts, dedup_key, type, last_error, history, headers, body)
SELECT id, priority, enqueued_at, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c), cause, fingerprint, fence + 1, attempts, dedup_key, type, last_error, CASE WHEN q.uncounted = 1 THEN q.history ELSE left((SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) || ' ' || (coalesce(q.took, 0)) || ' ' || coalesce(left((SELECT m.name FROM "public"."chanq__consumers" AS m WHERE m.id = q.leased_by), 60), '') || chr(10) || coalesce(left(q.error, 300), '') || chr(30) || coalesce(q.history, ''), 2000) END, headers, body
FROM gone AS q
ON CONFLICT (id) DO UPDATE SET
  priority = excluded.priority, enqueued_at = excluded.enqueued_at, ended_at = excluded.ended_at, fence = excluded.fence,
  attempts = excluded.attempts, dedup_key = excluded.dedup_key, type = excluded.type, last_error = excluded.last_error, history = excluded.history,
  headers = excluded.headers, body = excluded.body, cause = excluded.cause, fingerprint = excluded.fingerprint, noticed_at = 0
RETURNING uuid_send(d.id), d.fence - 1;
