-- @n int, @lease_days int, @lease_ms int, @by binary(16), @salt bigint, @inline int, @heads binary(96)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
SET DEADLOCK_PRIORITY LOW;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @late datetime2(3) = DATEADD(millisecond, -250, @now);
DECLARE @p smallint = 2;
DECLARE @head datetime2(3);
DECLARE @id binary(16);
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, @now));
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @left int = @n;
IF EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders' AND s.paused = 1)
    SET @left = 0;
BEGIN TRANSACTION;
WHILE @p >= -1 AND @left > 0
BEGIN
    SET @head = DATEADD(millisecond, CONVERT(int, SUBSTRING(@heads, 24 * @p + 29, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@heads, 24 * @p + 25, 4)), @epoch));
    SET @id = CONVERT(binary(16), SUBSTRING(@heads, 24 * @p + 33, 16));
    IF @head > @late
    BEGIN
        SET @head = @late;
        SET @id = 0x00;
    END;
    IF @id > 0x00
    BEGIN
        WITH a AS (
            SELECT TOP (@left) u.id, u.priority, u.due_at, u.lease_until, u.enqueued_at, u.expires_at, u.fence, u.attempts, u.lapses, u.leased_by,
                u.dedup_key, u.type, u.headers, u.body
            FROM [dbo].[chanq_orders] AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
            INNER JOIN [dbo].[chanq_orders] AS u WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON u.id = i.id
            WHERE i.priority = @p AND i.due_at = @head AND i.id >= @id AND i.due_at <= @now AND i.leased_by IS NULL AND u.due_at <= @now AND u.leased_by IS NULL
            ORDER BY i.due_at, i.id
        )
        UPDATE a
        SET lease_until = @until,
            fence = CASE WHEN fence > @mark AND fence <= CONVERT(bigint, 0x7ce66b50e2840000) THEN fence ELSE @mark END + @salt,
            attempts = CASE WHEN attempts < 2000000000 THEN attempts + 1 ELSE attempts END,
            leased_by = @by
        OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
               CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
               DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
               DATEDIFF_BIG(millisecond, '19700101', inserted.due_at) AS due_at,
               DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
               CASE WHEN @inline >= 0 THEN inserted.dedup_key END AS dedup_key,
               CASE WHEN @inline >= 0 THEN inserted.type END AS type,
               CASE WHEN @inline >= 0 THEN inserted.headers END AS headers,
               CASE WHEN DATALENGTH(inserted.body) <= @inline THEN inserted.body END AS body,
               DATALENGTH(inserted.body) AS size
        OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN, OPTIMIZE FOR (@left = 1));
        SET @left = @left - @@ROWCOUNT;
        SET @head = DATEADD(millisecond, 1, @head);
    END;
    IF @left > 0
    BEGIN
        WITH a AS (
            SELECT TOP (@left) u.id, u.priority, u.due_at, u.lease_until, u.enqueued_at, u.expires_at, u.fence, u.attempts, u.lapses, u.leased_by,
                u.dedup_key, u.type, u.headers, u.body
            FROM [dbo].[chanq_orders] AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
            INNER JOIN [dbo].[chanq_orders] AS u WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON u.id = i.id
            WHERE i.priority = @p AND i.due_at >= @head AND i.due_at <= @now AND i.leased_by IS NULL AND u.due_at <= @now AND u.leased_by IS NULL
            ORDER BY i.due_at, i.id
        )
        UPDATE a
        SET lease_until = @until,
            fence = CASE WHEN fence > @mark AND fence <= CONVERT(bigint, 0x7ce66b50e2840000) THEN fence ELSE @mark END + @salt,
            attempts = CASE WHEN attempts < 2000000000 THEN attempts + 1 ELSE attempts END,
            leased_by = @by
        OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
               CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
               DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
               DATEDIFF_BIG(millisecond, '19700101', inserted.due_at) AS due_at,
               DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
               CASE WHEN @inline >= 0 THEN inserted.dedup_key END AS dedup_key,
               CASE WHEN @inline >= 0 THEN inserted.type END AS type,
               CASE WHEN @inline >= 0 THEN inserted.headers END AS headers,
               CASE WHEN DATALENGTH(inserted.body) <= @inline THEN inserted.body END AS body,
               DATALENGTH(inserted.body) AS size
        OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN, OPTIMIZE FOR (@left = 1));
        SET @left = @left - @@ROWCOUNT;
    END;
    SET @p = @p - 1;
END;
COMMIT TRANSACTION;
