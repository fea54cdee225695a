UPDATE "public"."chanq_orders" AS q
SET lease_until = 0, fence = CASE WHEN q.fence > 8999998900488372224 THEN (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) << 20 ELSE q.fence + 1 END, lapses = least(q.lapses + 1, 32767), leased_by = NULL,
    history = left(least(q.lease_until, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)) || ' ' || (least(q.lease_until, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)) - (q.fence >> 20)) || ' ' || coalesce(left((SELECT m.name FROM "public"."chanq__consumers" AS m WHERE m.id = q.leased_by), 60), '') || chr(10) || 'the lease expired' || chr(30) || coalesce(q.history, ''), 2000)
FROM unnest((SELECT $1::uuid[])) AS a (id)
WHERE q.id = ANY (ARRAY[a.id]) AND q.leased_by = $2::uuid AND q.lease_until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)
RETURNING uuid_send(q.id);
