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
       r.id, r.fence, r.crashes, r.alone, CASE WHEN f.suspect = 0 THEN f.id END AS head_id
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at, MIN(e.suspect) AS suspect, MIN(e.id) AS id, MIN(e.fence) AS fence, MIN(e.crashes) AS crashes, MIN(e.alone) AS alone FROM (
        SELECT TOP (1) q.due_at, q.id, q.fence, q.alone, CASE WHEN (CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE q.lapses + 1 END < 2 OR q.expires_at <= @now) THEN 0 ELSE 1 END AS suspect,
               CASE WHEN q.leased_by IS NULL OR q.alone = 0 THEN q.crashes ELSE q.crashes + 1 END AS crashes
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE q.priority = p.priority AND q.due_at <= @now AND q.lease_until <= @now
        ORDER BY q.due_at, q.id) AS e) AS f
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at FROM (
        SELECT TOP (1) q.due_at
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE f.suspect = 1 AND q.priority = p.priority AND q.due_at <= @now AND q.lease_until <= @now AND (CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE q.lapses + 1 END < 2 OR q.expires_at <= @now)
        ORDER BY q.due_at, q.id) AS e) AS n
CROSS APPLY (
    SELECT CASE WHEN f.suspect = 1 THEN n.due_at ELSE f.due_at END AS due_at, CASE WHEN f.suspect = 1 THEN f.id END AS id,
           CASE WHEN f.suspect = 1 THEN f.fence END AS fence, CASE WHEN f.suspect = 1 THEN f.crashes END AS crashes,
           CASE WHEN f.suspect = 1 THEN f.alone END AS alone) AS r
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
