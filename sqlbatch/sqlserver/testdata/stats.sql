-- @limit bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT CASE WHEN f.ready < @limit THEN f.ready ELSE @limit END AS ready,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) q.id
            FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
            WHERE q.priority IN (2, 1, 0, -1) AND q.due_at > @now) AS s) AS scheduled,
       CASE WHEN f.leased < @limit THEN f.leased ELSE @limit END AS leased,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_ended]))) AS d) AS dead,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM [dbo].[chanq_orders__done] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__done_id]))) AS d) AS done,
       DATEDIFF_BIG(millisecond, f.oldest, @now) AS oldest_ms,
       CASE WHEN EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders' AND s.paused = 1) THEN 1 ELSE 0 END AS paused
FROM (
    SELECT COUNT_BIG(CASE WHEN e.lease_until <= @now THEN 1 END) AS ready,
           COUNT_BIG(CASE WHEN e.lease_until > @now THEN 1 END) AS leased,
           MIN(CASE WHEN e.lease_until <= @now THEN e.due_at END) AS oldest
    FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS APPLY (
        SELECT TOP (2 * @limit) q.due_at, q.lease_until
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE q.priority = p.priority AND q.due_at <= @now
        ORDER BY q.due_at, q.id) AS e
) AS f
OPTION (KEEPFIXED PLAN);
