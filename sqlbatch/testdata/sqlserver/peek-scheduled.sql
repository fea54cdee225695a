-- @n bigint
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT TOP (@n) 'scheduled' AS state, q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', q.visible_at) AS due_at,
       q.leased_by, q.dedup_key, q.last_error, q.headers, q.body
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
    SELECT TOP (@n) l.id, l.priority, l.fence, l.attempts, l.enqueued_at, l.visible_at,
           l.leased_by, l.dedup_key, l.last_error, l.headers, l.body
    FROM [dbo].[chanq_orders] AS l WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
    WHERE l.priority = p.priority AND l.visible_at > @now AND l.leased_by IS NULL
    ORDER BY l.visible_at, l.id
) AS q
ORDER BY q.priority DESC, q.visible_at, q.id;
