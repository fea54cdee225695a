-- @version int, @holds bigint, @max_keys bigint, @max_attempts bigint, @max_body bigint, @retain_ms bigint, @retain_dead_ms bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
INSERT INTO [dbo].[chanq__queues] WITH (ROWLOCK) (name, version, paused, created_at, kind, slots, shard, shards, shard_set, holds, max_keys, max_attempts, max_body, retain_ms, retain_dead_ms)
SELECT 'orders', 0, 0, SYSUTCDATETIME(), 2, 4, 0, 0, '', 0, 0, 20, 1048576, 0, 0
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE s.name = 'orders');
UPDATE [dbo].[chanq__queues] WITH (ROWLOCK)
SET version = CASE WHEN version > @version THEN version ELSE @version END,
    holds = @holds, max_keys = @max_keys, max_attempts = @max_attempts, max_body = @max_body, retain_ms = @retain_ms, retain_dead_ms = @retain_dead_ms
WHERE name = 'orders';
