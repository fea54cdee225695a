INSERT INTO [dbo].[chanq__queues] WITH (ROWLOCK) (name, version, paused, created_at, slots, holds, shard, shards, shard_set)
SELECT 'orders', 1, 0, SYSUTCDATETIME(), 4, 0, 0, 0, ''
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE s.name = 'orders');
