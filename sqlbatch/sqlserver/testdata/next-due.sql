-- @floors binary(32)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @late datetime2(3) = DATEADD(millisecond, -250, @now);
DECLARE @floor0 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@floors, 5, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@floors, 1, 4)), @epoch));
IF @floor0 > @late
    SET @floor0 = @late;
DECLARE @floor1 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@floors, 13, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@floors, 9, 4)), @epoch));
IF @floor1 > @late
    SET @floor1 = @late;
DECLARE @floor2 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@floors, 21, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@floors, 17, 4)), @epoch));
IF @floor2 > @late
    SET @floor2 = @late;
DECLARE @floor3 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@floors, 29, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@floors, 25, 4)), @epoch));
IF @floor3 > @late
    SET @floor3 = @late;
SELECT DATEDIFF_BIG(millisecond, @now, MIN(f.due_at)) AS due_in_ms
FROM (VALUES (2, @floor3), (1, @floor2), (0, @floor1), (-1, @floor0)) AS p (priority, floor)
CROSS APPLY (
    SELECT TOP (1) q.due_at
    FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_due]), FORCESEEK)
    WHERE q.priority = p.priority AND q.due_at >= p.floor AND q.lease_until <= @now AND (CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE q.lapses + 1 END < 2 OR q.expires_at <= @now)
    ORDER BY q.due_at, q.id) AS f
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq_queues] AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = 'orders' AND s.paused = 1)
OPTION (KEEPFIXED PLAN);
