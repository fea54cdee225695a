UPDATE "public"."chanq__queues" SET holds = $1::smallint, max_keys = $2::integer, max_attempts = $3::integer, max_body = $4::integer, retain_ms = $5::bigint, retain_dead_ms = $6::bigint
WHERE name = 'orders';
