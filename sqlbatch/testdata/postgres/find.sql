SELECT uuid_send(q.id), q.dedup_key, q.fence, (q.leased_by IS NOT NULL AND q.visible_at > (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint))::integer AS leased
FROM unnest((SELECT $1::uuid[])) AS a (id)
JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[a.id])
UNION ALL
SELECT uuid_send(q.id), q.dedup_key, q.fence, (q.leased_by IS NOT NULL AND q.visible_at > (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint))::integer AS leased
FROM unnest((SELECT $2::text[])) AS a (dedup_key)
JOIN "public"."chanq_orders" AS q ON q.dedup_key = ANY (ARRAY[a.dedup_key]) AND q.dedup_key IS NOT NULL;
