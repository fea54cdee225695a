UPDATE "public"."chanq_orders" AS q
SET due_at = (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) + coalesce(a.delay, 0), lease_until = 0, fence = q.fence + 1, attempts = q.attempts - q.lapses - 1, lapses = 0, leased_by = NULL,
    last_error = CASE WHEN a.error > 0 THEN convert_from(substring($7::bytea FROM a.error_at FOR a.error), 'UTF8') ELSE q.last_error END
FROM unnest((SELECT $1::uuid[]), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::integer[]), (SELECT $6::integer[])) AS a (id, above, delay, error_at, error)
WHERE q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])
RETURNING uuid_send(q.id), q.fence - 1;
