INSERT INTO "public"."chanq_queues" (name, version, created_at, slots, holds) VALUES ('orders', $1::integer, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint), 4, 0)
ON CONFLICT (name) DO UPDATE SET version = excluded.version, holds = excluded.holds;
