SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT p.priority,
       DATEDIFF_BIG(millisecond, '19700101', CASE WHEN r.due_at IS NULL THEN @now ELSE r.due_at END) AS head,
       DATEDIFF_BIG(millisecond, @now, CASE WHEN r.due_at IS NOT NULL THEN r.due_at
           WHEN s.due_at IS NULL OR l.lease_until < s.due_at THEN l.lease_until ELSE s.due_at END) AS due_in,
       (SELECT COUNT_BIG(*) FROM [dbo].[chanq__consumers] AS m WITH (READPAST, READCOMMITTEDLOCK) WHERE m.queue = 'orders' AND m.until > @now) AS consumers,
       r.id AS head_id, r.lapses, DATEDIFF_BIG(millisecond, '19700101', x.due_at) AS lost_at, x.id AS lost_id
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at, MIN(e.id) AS id, MIN(e.lapses) AS lapses FROM (
        SELECT TOP (1) q.due_at, q.id, q.lapses
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE q.priority = p.priority AND q.due_at <= @now AND q.leased_by IS NULL
        ORDER BY q.due_at, q.id) AS e) AS r
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at, MIN(e.id) AS id FROM (
        SELECT TOP (1) f.due_at, f.id FROM (
            SELECT TOP (100 + 1) q.due_at, q.id, q.leased_by
            FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
            WHERE q.priority = p.priority AND q.due_at <= @now AND q.lease_until <= @now
            ORDER BY q.due_at, q.id) AS f
        WHERE f.leased_by IS NOT NULL
        ORDER BY f.due_at, f.id) AS e) AS x
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at FROM (
        SELECT TOP (1) q.due_at
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE q.priority = p.priority AND q.due_at > @now
        ORDER BY q.due_at, q.id) AS e) AS s
CROSS APPLY (
    SELECT MIN(e.lease_until) AS lease_until FROM (
        SELECT TOP (100000) q.lease_until
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE r.due_at IS NULL AND q.priority = p.priority AND q.due_at <= @now AND q.lease_until > @now
        ORDER BY q.due_at, q.id) AS e) AS l
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders' AND s.paused = 1)
OPTION (KEEPFIXED PLAN);
