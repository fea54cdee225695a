INSERT INTO "main"."chanq__queues" (name, version, created_at, kind, slots, shard, shards, shard_set, holds, max_keys, max_attempts, max_body, retain_ms, retain_dead_ms)
VALUES ('orders', ?7, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 1, 0, 0, 0, '', ?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (name) DO UPDATE SET version = max(version, excluded.version), holds = excluded.holds, max_keys = excluded.max_keys, max_attempts = excluded.max_attempts, max_body = excluded.max_body, retain_ms = excluded.retain_ms, retain_dead_ms = excluded.retain_dead_ms;
