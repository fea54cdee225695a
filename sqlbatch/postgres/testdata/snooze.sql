UPDATE "public"."chanq_orders" AS q
SET due_at = (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) + coalesce(a.delay, 0), lease_until = 0, fence = q.fence + 1, attempts = q.attempts - q.lapses - 1, lapses = 0, leased_by = NULL, last_error = coalesce(a.error, q.last_error), history = q.history
FROM (
  SELECT a.id, a.above, a.delay, a.took, CASE WHEN a.bytes > 0 THEN convert_from(substring($8::bytea FROM a.starts FOR a.bytes), 'UTF8') END AS error
  FROM unnest((SELECT CASE WHEN set_config('lock_timeout', w.ms, true) IS NOT NULL THEN $1::uuid[] END FROM (VALUES ('100')) AS w (ms)), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::bigint[]), (SELECT $6::integer[]), (SELECT $7::integer[])) AS a (id, above, delay, took, starts, bytes)
) AS a
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence - 1;
