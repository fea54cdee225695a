-- @n int, @lease_days int, @lease_ms int, @by binary(16), @salt bigint, @lapses int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET DEADLOCK_PRIORITY LOW;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, @now));
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @left int = @n;
IF EXISTS (SELECT 1 FROM [dbo].[chanq_queues] AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = 'orders' AND s.paused = 1)
    SET @left = 0;
BEGIN TRANSACTION;
IF @left > 0
BEGIN
    UPDATE TOP (@left) c
    SET visible_at = @until,
        fence = CASE WHEN c.fence > @mark THEN c.fence ELSE @mark END + @salt,
        attempts = c.attempts + 1,
        lapses = CASE WHEN c.lapses < 32767 THEN c.lapses + 1 ELSE c.lapses END,
        leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body
    FROM [dbo].[chanq_orders] AS c WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_leased]), FORCESEEK)
    WHERE priority = 2 AND visible_at <= @now AND leased_by IS NOT NULL AND lapses + 1 < @lapses
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) c
    SET visible_at = @until,
        fence = CASE WHEN c.fence > @mark THEN c.fence ELSE @mark END + @salt,
        attempts = c.attempts + 1,
        leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body
    FROM [dbo].[chanq_orders] AS c WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
    WHERE priority = 2 AND visible_at <= @now AND leased_by IS NULL AND lapses < @lapses
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) c
    SET visible_at = @until,
        fence = CASE WHEN c.fence > @mark THEN c.fence ELSE @mark END + @salt,
        attempts = c.attempts + 1,
        lapses = CASE WHEN c.lapses < 32767 THEN c.lapses + 1 ELSE c.lapses END,
        leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body
    FROM [dbo].[chanq_orders] AS c WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_leased]), FORCESEEK)
    WHERE priority = 1 AND visible_at <= @now AND leased_by IS NOT NULL AND lapses + 1 < @lapses
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) c
    SET visible_at = @until,
        fence = CASE WHEN c.fence > @mark THEN c.fence ELSE @mark END + @salt,
        attempts = c.attempts + 1,
        leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body
    FROM [dbo].[chanq_orders] AS c WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
    WHERE priority = 1 AND visible_at <= @now AND leased_by IS NULL AND lapses < @lapses
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) c
    SET visible_at = @until,
        fence = CASE WHEN c.fence > @mark THEN c.fence ELSE @mark END + @salt,
        attempts = c.attempts + 1,
        lapses = CASE WHEN c.lapses < 32767 THEN c.lapses + 1 ELSE c.lapses END,
        leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body
    FROM [dbo].[chanq_orders] AS c WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_leased]), FORCESEEK)
    WHERE priority = 0 AND visible_at <= @now AND leased_by IS NOT NULL AND lapses + 1 < @lapses
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) c
    SET visible_at = @until,
        fence = CASE WHEN c.fence > @mark THEN c.fence ELSE @mark END + @salt,
        attempts = c.attempts + 1,
        leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body
    FROM [dbo].[chanq_orders] AS c WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
    WHERE priority = 0 AND visible_at <= @now AND leased_by IS NULL AND lapses < @lapses
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) c
    SET visible_at = @until,
        fence = CASE WHEN c.fence > @mark THEN c.fence ELSE @mark END + @salt,
        attempts = c.attempts + 1,
        lapses = CASE WHEN c.lapses < 32767 THEN c.lapses + 1 ELSE c.lapses END,
        leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body
    FROM [dbo].[chanq_orders] AS c WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_leased]), FORCESEEK)
    WHERE priority = -1 AND visible_at <= @now AND leased_by IS NOT NULL AND lapses + 1 < @lapses
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) c
    SET visible_at = @until,
        fence = CASE WHEN c.fence > @mark THEN c.fence ELSE @mark END + @salt,
        attempts = c.attempts + 1,
        leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body
    FROM [dbo].[chanq_orders] AS c WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
    WHERE priority = -1 AND visible_at <= @now AND leased_by IS NULL AND lapses < @lapses
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
COMMIT TRANSACTION;
