SELECT version, min_version, features, paused, kind, slots, holds, max_keys, max_attempts, max_body, retain_ms, retain_dead_ms, shard, shards, shard_set, paused_at, paused_by, pause_reason,
  (SELECT file FROM pragma_database_list WHERE name = 'main' COLLATE NOCASE) || '/' || created_at AS identity FROM "main"."chanq__queues" WHERE name = 'orders';
