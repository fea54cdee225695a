-- @p smallint, @at_days int, @at_ms int, @id binary(16), @most int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
SET DEADLOCK_PRIORITY LOW;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @at datetime2(3) = DATEADD(millisecond, @at_ms, DATEADD(day, @at_days, @epoch));
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @lost TABLE (id binary(16) NOT NULL, lost int NOT NULL, PRIMARY KEY CLUSTERED (id));
INSERT INTO @lost (id, lost)
SELECT TOP (2500) q.id, CASE WHEN q.leased_by IS NOT NULL AND q.lease_until <= @now THEN 1 ELSE 0 END
FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
WHERE q.priority = @p AND q.due_at >= @at AND (q.due_at > @at OR q.id >= @id) AND q.due_at <= @now
ORDER BY q.due_at, q.id
OPTION (KEEPFIXED PLAN);
UPDATE q
SET due_at = CASE WHEN q.lapses >= 1 AND q.lapses <= @most - 2
        THEN DATEADD(millisecond, CONVERT(int, CONVERT(bigint, SUBSTRING(CONVERT(binary(16), NEWID()), 11, 6)) % CASE WHEN q.lapses = 1 THEN 60000 WHEN q.lapses = 2 THEN 120000 WHEN q.lapses = 3 THEN 240000 WHEN q.lapses = 4 THEN 480000 WHEN q.lapses = 5 THEN 960000 WHEN q.lapses = 6 THEN 1920000 ELSE 3600000 END), @now) ELSE q.due_at END,
    lease_until = '19700101',
    fence = CASE WHEN q.fence > CONVERT(bigint, 0x7ce66b50e2840000) THEN @mark ELSE q.fence + 1 END,
    lapses = CASE WHEN q.lapses < 32767 THEN q.lapses + 1 ELSE q.lapses END,
    leased_by = NULL,
    history = CONVERT(nvarchar(2000), CONCAT(DATEDIFF_BIG(millisecond, '19700101', CASE WHEN q.lease_until < @now THEN q.lease_until ELSE @now END), N' ', DATEDIFF_BIG(millisecond, '19700101', CASE WHEN q.lease_until < @now THEN q.lease_until ELSE @now END) - q.fence / 1048576, N' ', SUBSTRING(h.name, 1, 60), CONVERT(nvarchar(1), 0x0A00),
        N'the lease expired', CONVERT(nvarchar(1), 0x1E00), q.history))
OUTPUT inserted.id, inserted.priority, DATEDIFF_BIG(millisecond, '19700101', inserted.due_at) AS due_at
FROM @lost AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id
INNER JOIN [dbo].[chanq_orders] AS e WITH (XLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK) ON e.priority = q.priority AND e.due_at = q.due_at AND e.id = q.id
CROSS APPLY (SELECT MIN(m.name) AS name FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) WHERE m.id = q.leased_by) AS h
WHERE a.lost = 1 AND q.leased_by IS NOT NULL AND q.lease_until <= @now
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
