SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT DATEDIFF_BIG(millisecond, @now, MIN(f.visible_at)) AS due_in_ms
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
    SELECT u.visible_at FROM (
        SELECT TOP (1) q.visible_at
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
        WHERE q.priority = p.priority AND q.leased_by IS NULL
        ORDER BY q.visible_at, q.id) AS u
    UNION ALL
    SELECT l.visible_at FROM (
        SELECT TOP (1) q.visible_at
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_leased]), FORCESEEK)
        WHERE q.priority = p.priority AND q.leased_by IS NOT NULL
        ORDER BY q.visible_at, q.id) AS l
) AS f
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq_queues] AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = 'orders' AND s.paused = 1)
OPTION (KEEPFIXED PLAN);
