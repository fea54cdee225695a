-- @n bigint, @after_days int, @after_ms int, @after_id binary(16), @before_days int, @before_ms int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
DECLARE @before datetime2(3) = DATEADD(millisecond, @before_ms, DATEADD(day, @before_days, @epoch));
DELETE q
OUTPUT deleted.id, DATEDIFF_BIG(millisecond, '19700101', deleted.ended_at) AS place
FROM (
    SELECT TOP (@n) d.id
    FROM [dbo].[chanq_orders__dead] AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_ended]), FORCESEEK)
    INNER JOIN [dbo].[chanq_orders__dead] AS d WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON d.id = i.id AND d.ended_at = i.ended_at
    WHERE i.ended_at >= @after AND (i.ended_at > @after OR i.id > @after_id) AND i.ended_at < @before
    ORDER BY i.ended_at, i.id
) AS a
INNER JOIN [dbo].[chanq_orders__dead] AS q WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON q.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
