-- @limit bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) e.id FROM (
                SELECT q.id
                FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
                WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at <= @now AND q.leased_by IS NULL
                UNION ALL
                SELECT q.id
                FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_leased]), FORCESEEK)
                WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at <= @now AND q.leased_by IS NOT NULL) AS e) AS r) AS ready,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) q.id
            FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
            WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at > @now AND q.leased_by IS NULL) AS s) AS scheduled,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) q.id
            FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_leased]), FORCESEEK)
            WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at > @now AND q.leased_by IS NOT NULL) AS l) AS leased,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM [dbo].[chanq_orders_dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_dead_ended]))) AS d) AS dead,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM [dbo].[chanq_orders_done] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_done_id]))) AS d) AS done,
       (SELECT DATEDIFF_BIG(millisecond, MIN(f.visible_at), @now)
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
        WHERE f.visible_at <= @now) AS oldest_ms,
       (SELECT COUNT(*) FROM [dbo].[chanq_queues] AS s WITH (READPAST, READCOMMITTEDLOCK)
        WHERE s.name = 'orders' AND s.paused = 1) AS paused
OPTION (KEEPFIXED PLAN);
