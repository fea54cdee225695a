-- @limit bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT CASE WHEN f.ready < @limit THEN f.ready ELSE @limit END AS ready,
       CASE WHEN f.scheduled < @limit THEN f.scheduled ELSE @limit END AS scheduled,
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
    SELECT COUNT_BIG(CASE WHEN e.due_at <= @now AND e.lease_until <= @now THEN 1 END) AS ready,
           COUNT_BIG(CASE WHEN e.due_at > @now AND e.lease_until <= @now THEN 1 END) AS scheduled,
           COUNT_BIG(CASE WHEN e.lease_until > @now THEN 1 END) AS leased,
           MIN(CASE WHEN e.due_at <= @now AND e.lease_until <= @now THEN e.due_at END) AS oldest
    FROM (
        SELECT TOP (2 * @limit) q.due_at, q.lease_until
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
        WHERE q.seq > 0
        ORDER BY q.seq) AS e
) AS f
OPTION (KEEPFIXED PLAN);
