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
SELECT p.priority,
       DATEDIFF_BIG(millisecond, '19700101', CASE WHEN r.due_at IS NULL THEN @now ELSE r.due_at END) AS head,
       DATEDIFF_BIG(millisecond, @now, CASE WHEN r.due_at IS NOT NULL THEN r.due_at
           WHEN s.due_at IS NULL OR l.lease_until < s.due_at THEN l.lease_until ELSE s.due_at END) AS due_in,
       (SELECT COUNT_BIG(*) FROM [dbo].[chanq__consumers] AS m WITH (READPAST, READCOMMITTEDLOCK) WHERE m.queue = 'orders' AND m.until > @now) AS consumers,
       r.id AS head_id, r.lapses, CASE WHEN x.lost = 1 THEN DATEDIFF_BIG(millisecond, '19700101', x.due_at) END AS lost_at, CASE WHEN x.lost = 1 THEN x.id END AS lost_id
FROM (VALUES (2, @head3, @id3), (1, @head2, @id2), (0, @head1, @id1), (-1, @head0, @id0)) AS p (priority, head, id)
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at, MIN(e.id) AS id, MIN(e.lapses) AS lapses FROM (
        SELECT TOP (1) q.due_at, q.id, q.lapses
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE q.priority = p.priority AND q.due_at <= @now AND q.leased_by IS NULL
        ORDER BY q.due_at, q.id) AS e) AS r
CROSS APPLY (
    SELECT MIN(e.due_at) AS due_at, MIN(e.id) AS id, MIN(e.lost) AS lost FROM (
        SELECT TOP (1) q.due_at, q.id, CASE WHEN q.leased_by IS NULL THEN 0 ELSE 1 END AS lost
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE q.priority = p.priority AND q.due_at <= @now AND q.lease_until <= @now
          AND (q.leased_by IS NOT NULL OR q.due_at > p.head OR q.due_at = p.head AND q.id >= p.id)
        ORDER BY q.due_at, q.id) AS e) AS x
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
