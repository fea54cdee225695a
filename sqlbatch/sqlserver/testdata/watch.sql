-- @queues varbinary(8000), @every varchar(12), @most_ms int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET LOCK_TIMEOUT 100;
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @most_ms, @now);
DECLARE @late datetime2(3) = DATEADD(millisecond, -250, @now);
DECLARE @granted int;
DECLARE @chairs int = 0;
DECLARE @any int = 0;
DECLARE @chair0 nvarchar(255);
DECLARE @after0 int = 0;
DECLARE @seen0 int = 0;
DECLARE @found0 int = 0;
DECLARE @floor0_0 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@queues, 6, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@queues, 2, 4)), @epoch));
IF @floor0_0 > @late
    SET @floor0_0 = @late;
DECLARE @floor0_1 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@queues, 14, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@queues, 10, 4)), @epoch));
IF @floor0_1 > @late
    SET @floor0_1 = @late;
DECLARE @floor0_2 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@queues, 22, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@queues, 18, 4)), @epoch));
IF @floor0_2 > @late
    SET @floor0_2 = @late;
DECLARE @floor0_3 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@queues, 30, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@queues, 26, 4)), @epoch));
IF @floor0_3 > @late
    SET @floor0_3 = @late;
IF CONVERT(int, SUBSTRING(@queues, 1, 1)) = 1
BEGIN
    SET @chair0 = N'chanq chair 1 of dbo.orders';
    EXEC @granted = sys.sp_getapplock @Resource = @chair0, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
    IF @granted < 0
    BEGIN
        SET @chair0 = N'chanq chair 2 of dbo.orders';
        SET @after0 = 4;
        EXEC @granted = sys.sp_getapplock @Resource = @chair0, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
    END;
    IF @granted < 0
        SET @chair0 = NULL;
    IF @granted >= 0
        SET @chairs = @chairs + 1;
END;
WHILE @chairs > 0
BEGIN
    IF @chair0 IS NOT NULL
    BEGIN
        SET @seen0 = @seen0 + 1;
        IF NOT EXISTS (
            SELECT 1
            FROM (VALUES (2, @floor0_3), (1, @floor0_2), (0, @floor0_1), (-1, @floor0_0)) AS p (priority, floor)
            CROSS APPLY (
                SELECT TOP (1) q.due_at
                FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_due]), FORCESEEK)
                WHERE q.priority = p.priority AND q.due_at >= p.floor AND q.due_at <= @now AND q.lease_until <= @now
                ORDER BY q.due_at, q.id) AS f)
            SET @seen0 = 0;
        IF @seen0 > @after0 AND NOT EXISTS (SELECT 1 FROM [dbo].[chanq_queues] AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = 'orders' AND s.paused = 1)
        BEGIN
            SET @found0 = 1;
            SET @any = 1;
        END;
        IF @seen0 = 0
        BEGIN
            SET @floor0_0 = @late;
            SET @floor0_1 = @late;
            SET @floor0_2 = @late;
            SET @floor0_3 = @late;
        END;
    END;
    IF @any = 1 OR @now >= @until
        BREAK;
    WAITFOR DELAY @every;
    SET @now = SYSUTCDATETIME();
    SET @late = DATEADD(millisecond, -250, @now);
END;
IF @chair0 IS NOT NULL
    EXEC @granted = sys.sp_releaseapplock @Resource = @chair0, @LockOwner = N'Session';
SELECT w.place, w.seated, w.found
FROM (VALUES (0, CASE WHEN @chair0 IS NULL THEN 0 ELSE 1 END, @found0)) AS w (place, seated, found);
