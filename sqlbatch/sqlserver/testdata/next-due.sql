-- @heads binary(96)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @late datetime2(3) = DATEADD(millisecond, -250, @now);
DECLARE @head0 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@heads, 5, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@heads, 1, 4)), @epoch));
IF @head0 > @late
    SET @head0 = @late;
DECLARE @id0 binary(16) = CONVERT(binary(16), SUBSTRING(@heads, 9, 16));
IF @head0 >= @late
    SET @id0 = 0x00;
DECLARE @head1 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@heads, 29, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@heads, 25, 4)), @epoch));
IF @head1 > @late
    SET @head1 = @late;
DECLARE @id1 binary(16) = CONVERT(binary(16), SUBSTRING(@heads, 33, 16));
IF @head1 >= @late
    SET @id1 = 0x00;
DECLARE @head2 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@heads, 53, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@heads, 49, 4)), @epoch));
IF @head2 > @late
    SET @head2 = @late;
DECLARE @id2 binary(16) = CONVERT(binary(16), SUBSTRING(@heads, 57, 16));
IF @head2 >= @late
    SET @id2 = 0x00;
DECLARE @head3 datetime2(3) = DATEADD(millisecond, CONVERT(int, SUBSTRING(@heads, 77, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@heads, 73, 4)), @epoch));
IF @head3 > @late
    SET @head3 = @late;
DECLARE @id3 binary(16) = CONVERT(binary(16), SUBSTRING(@heads, 81, 16));
IF @head3 >= @late
    SET @id3 = 0x00;
SELECT DATEDIFF_BIG(millisecond, @now, MIN(f.due_at)) AS due_in_ms
FROM (VALUES (2, @head3, @id3), (1, @head2, @id2), (0, @head1, @id1), (-1, @head0, @id0)) AS p (priority, head, id)
CROSS APPLY (
    SELECT TOP (1) q.due_at
    FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
    WHERE q.priority = p.priority AND q.due_at >= p.head AND (q.due_at > p.head OR q.id >= p.id) AND q.leased_by IS NULL
    ORDER BY q.due_at, q.id) AS f
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders' AND s.paused = 1)
OPTION (KEEPFIXED PLAN);
