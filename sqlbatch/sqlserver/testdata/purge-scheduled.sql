-- @n bigint, @after_days int, @after_ms int, @after_id binary(16), @before_days int, @before_ms int, @priority smallint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
DECLARE @before datetime2(3) = DATEADD(millisecond, @before_ms, DATEADD(day, @before_days, @epoch));
IF @after < @now SET @after = @now;
DELETE q
OUTPUT deleted.id, DATEDIFF_BIG(millisecond, '19700101', deleted.due_at) AS place
FROM (
    SELECT TOP (@n) u.id
    FROM [dbo].[chanq_orders] AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
    INNER JOIN [dbo].[chanq_orders] AS u WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON u.id = i.id
    WHERE i.priority = @priority AND i.due_at >= @after AND (i.due_at > @after OR i.id > @after_id) AND i.enqueued_at < @before AND u.due_at > @now AND u.lease_until <= @now
    ORDER BY i.due_at, i.id
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
