-- @n bigint, @after_days int, @after_ms int, @before_days int, @before_ms int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
DECLARE @before datetime2(3) = DATEADD(millisecond, @before_ms, DATEADD(day, @before_days, @epoch));
DELETE TOP (@n) q
OUTPUT deleted.id, CONVERT(bigint, 0) AS place
FROM [dbo].[chanq_orders] AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_due]), FORCESEEK)
INNER JOIN [dbo].[chanq_orders] AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = i.id
WHERE i.priority IN (2, 1, 0, -1) AND i.due_at > @now AND i.enqueued_at < @before AND q.due_at > @now AND q.lease_until <= @now
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
