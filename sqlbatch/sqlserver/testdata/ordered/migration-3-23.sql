INSERT INTO [dbo].[chanq__queues] WITH (ROWLOCK) (name, version, min_version, paused, created_at, kind, slots, shard, shards, shard_set, holds, max_keys, max_attempts, max_body, retain_ms, retain_dead_ms)
SELECT 'orders', 3, 2, 0, SYSUTCDATETIME(), 2, 4, 0, 0, '', 0, 0, 20, 1048576, 0, 0
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE s.name = 'orders');
