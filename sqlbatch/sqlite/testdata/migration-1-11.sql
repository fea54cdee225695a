INSERT INTO "main"."chanq_queues" (name, version, created_at) VALUES ('orders', 1, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) ON CONFLICT (name) DO NOTHING;
