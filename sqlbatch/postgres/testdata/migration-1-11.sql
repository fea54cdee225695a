INSERT INTO "public"."chanq_queues" (name, version, created_at) VALUES ('orders', 1, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint)) ON CONFLICT (name) DO NOTHING;
