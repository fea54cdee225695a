-- @limit bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @ready bigint = (SELECT COUNT_BIG(*) FROM (
    SELECT TOP (@limit) r.id
    FROM (
        SELECT TOP (2 * @limit) e.id, e.due_at, e.lease_until
        FROM [dbo].[chanq_orders] AS e WITH (READPAST, READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]))) AS r
    WHERE r.due_at <= @now AND r.lease_until <= @now) AS f);
SELECT @ready AS ready,
       CASE WHEN f.scheduled < @limit THEN f.scheduled ELSE @limit END AS scheduled,
       CASE WHEN f.leased < @limit THEN f.leased ELSE @limit END AS leased,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM [dbo].[chanq_orders_dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_dead_ended]))) AS d) AS dead,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM [dbo].[chanq_orders_done] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_done_id]))) AS d) AS done,
       DATEDIFF_BIG(millisecond, f.oldest, @now) AS oldest_ms,
       (SELECT COUNT(*) FROM [dbo].[chanq_queues] AS s WITH (READPAST, READCOMMITTEDLOCK)
        WHERE s.name = 'orders' AND s.paused = 1) AS paused
FROM (
    SELECT COUNT_BIG(CASE WHEN e.due_at > @now AND e.lease_until <= @now THEN 1 END) AS scheduled,
           COUNT_BIG(CASE WHEN e.lease_until > @now THEN 1 END) AS leased,
           MIN(CASE WHEN e.due_at <= @now AND e.lease_until <= @now THEN e.due_at END) AS oldest
    FROM [dbo].[chanq_slots] AS p
    CROSS APPLY (
        SELECT TOP (@limit / 4 + 10) q.due_at, q.lease_until
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_due]), FORCESEEK)
        WHERE q.slot = p.slot
        ORDER BY q.seq) AS e
    WHERE p.queue = 'orders'
) AS f
OPTION (KEEPFIXED PLAN);
