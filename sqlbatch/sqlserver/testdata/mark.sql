-- @id binary(16), @fence bigint, @lease_days int, @lease_ms int, @by binary(16), @salt bigint, @alone smallint, @again int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
SET DEADLOCK_PRIORITY LOW;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, @now));
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
IF NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders' AND s.paused = 1)
    UPDATE q
    SET lease_until = @until,
        fence = CASE WHEN q.fence > @mark AND q.fence <= CONVERT(bigint, 0x7ce66b50e2840000) THEN q.fence ELSE @mark END + @salt,
        attempts = CASE WHEN @again = 1 AND q.leased_by = @by OR q.attempts >= 2000000000 THEN q.attempts ELSE q.attempts + 1 END,
        lapses = CASE WHEN q.leased_by IS NULL OR @again = 1 AND q.leased_by = @by OR q.lapses >= 32767 THEN q.lapses ELSE q.lapses + 1 END,
        crashes = CASE WHEN q.leased_by IS NULL OR q.alone = 0 OR @again = 1 AND q.leased_by = @by OR q.crashes >= 32767 THEN q.crashes ELSE q.crashes + 1 END,
        leased_by = @by,
        alone = @alone
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.due_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(100), NULL) AS type, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body, DATALENGTH(inserted.body) AS size
    FROM [dbo].[chanq_orders] AS q WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK)
    WHERE q.id = @id AND q.fence = @fence AND q.due_at <= @now AND (q.lease_until <= @now OR @again = 1 AND q.leased_by = @by)
    OPTION (KEEPFIXED PLAN);
