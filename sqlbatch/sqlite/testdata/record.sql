INSERT INTO "main"."chanq__queues" (name, version, created_at, slots, holds, shard, shards, shard_set) VALUES ('orders', ?1, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 0, 0, 0, 0, '')
ON CONFLICT (name) DO UPDATE SET version = excluded.version, holds = excluded.holds;
