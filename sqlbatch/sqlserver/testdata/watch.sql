-- @queues varbinary(8000), @every varchar(12), @most_ms int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @most_ms, @now);
DECLARE @late datetime2(3) = DATEADD(millisecond, -250, @now);
DECLARE @granted int;
DECLARE @listeners int = 0;
DECLARE @any int = 0;
DECLARE @listener0 nvarchar(255);
DECLARE @after0 int = 0;
DECLARE @seen0 int = 0;
DECLARE @found0 int = 0;
DECLARE @first0 datetime2(3);
DECLARE @head0 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@queues, 6, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@queues, 2, 4)), @epoch));
IF @head0 > @late
    SET @head0 = @late;
IF CONVERT(int, SUBSTRING(@queues, 1, 1)) = 1
BEGIN
    SET @listener0 = N'chanq listener 1 of ' + CONVERT(nvarchar(11), CHECKSUM(N'dbo')) + N'.orders';
    EXEC @granted = sys.sp_getapplock @Resource = @listener0, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
    IF @granted < 0
    BEGIN
        SET @listener0 = N'chanq listener 2 of ' + CONVERT(nvarchar(11), CHECKSUM(N'dbo')) + N'.orders';
        SET @after0 = 4;
        EXEC @granted = sys.sp_getapplock @Resource = @listener0, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
    END;
    IF @granted < 0
        SET @listener0 = NULL;
    IF @granted >= 0
        SET @listeners = @listeners + 1;
END;
WHILE @listeners > 0
BEGIN
    IF @listener0 IS NOT NULL
    BEGIN
        SET @first0 = (
            SELECT MIN(f.due_at)
            FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
            CROSS APPLY (
                SELECT TOP (1) q.due_at
                FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
                WHERE q.priority = p.priority AND q.due_at >= @head0 AND q.due_at <= @now AND q.lease_until <= @now
                ORDER BY q.due_at, q.id) AS f);
        SET @seen0 = CASE WHEN @first0 IS NULL THEN 0 ELSE @seen0 + 1 END;
        SET @head0 = CASE WHEN @first0 IS NULL THEN @late ELSE DATEADD(millisecond, -250, @first0) END;
        IF @seen0 > @after0 AND NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders' AND s.paused = 1)
        BEGIN
            SET @found0 = 1;
            SET @any = 1;
        END;
    END;
    IF @any = 1 OR @now >= @until
        BREAK;
    WAITFOR DELAY @every;
    SET @now = SYSUTCDATETIME();
    SET @late = DATEADD(millisecond, -250, @now);
END;
IF @listener0 IS NOT NULL
    EXEC @granted = sys.sp_releaseapplock @Resource = @listener0, @LockOwner = N'Session';
SELECT w.place, w.seated, w.found, w.head
FROM (VALUES (0, CASE WHEN @listener0 IS NULL THEN 0 ELSE 1 END, @found0, DATEDIFF_BIG(millisecond, '19700101', @head0))) AS w (place, seated, found, head);
