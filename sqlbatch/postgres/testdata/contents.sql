SELECT decode(replace(q.dedup_key, chr(92), repeat(chr(92), 2)), 'escape') AS dedup_key, q.type, q.headers, q.body
FROM "public"."chanq_orders" AS q
WHERE q.id = ANY (ARRAY[$1::uuid]) AND q.fence = $2::bigint;
