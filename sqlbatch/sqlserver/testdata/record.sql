-- @version int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
INSERT INTO [dbo].[chanq__queues] WITH (ROWLOCK) (name, version, paused, created_at, slots, holds, shard, shards, shard_set)
SELECT 'orders', @version, 0, SYSUTCDATETIME(), 0, 0, 0, 0, ''
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE s.name = 'orders');
UPDATE [dbo].[chanq__queues] WITH (ROWLOCK)
SET version = @version
WHERE name = 'orders';
