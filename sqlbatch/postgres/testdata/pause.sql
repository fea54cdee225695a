UPDATE "public"."chanq__queues" SET paused = true, paused_at = (extract(epoch FROM statement_timestamp()) * 1000)::bigint, paused_by = $1::text, pause_reason = $2::text WHERE name = 'orders';
