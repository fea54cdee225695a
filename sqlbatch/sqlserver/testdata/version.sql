SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SELECT version, CONVERT(int, paused) AS paused, slots, CONVERT(int, holds) AS holds, shard, shards, shard_set
FROM [dbo].[chanq__queues]
WHERE name = 'orders';
