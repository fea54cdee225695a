SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SELECT version, min_version, features, CONVERT(int, paused) AS paused, kind, slots, CONVERT(int, holds) AS holds, max_keys, max_attempts, max_body, retain_ms, retain_dead_ms, shard, shards, shard_set,
       DATEDIFF_BIG(millisecond, '19700101', paused_at) AS paused_at, paused_by, pause_reason,
       DB_NAME() + N'/' + CONVERT(nvarchar(20), DATEDIFF_BIG(millisecond, '19700101', created_at)) AS [identity]
FROM [dbo].[chanq__queues] WITH (READCOMMITTEDLOCK)
WHERE name = 'orders';
