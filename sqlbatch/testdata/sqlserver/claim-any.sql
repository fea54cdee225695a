-- @n int, @lease_days int, @lease_ms int, @by nvarchar(200)
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET DEADLOCK_PRIORITY LOW;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, @now));
DECLARE @left int = @n;
IF EXISTS (SELECT 1 FROM [dbo].[chanq_queues] WHERE name = 'orders' AND paused = 1)
    SET @left = 0;
BEGIN TRANSACTION;
IF @left > 0
BEGIN
    UPDATE TOP (@left) q
    SET visible_at = @until, fence = q.fence + 1, attempts = q.attempts + 1, leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           inserted.dedup_key, inserted.headers, inserted.body
    FROM [dbo].[chanq_orders] AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
    WHERE q.priority = 2 AND q.visible_at <= @now
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) q
    SET visible_at = @until, fence = q.fence + 1, attempts = q.attempts + 1, leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           inserted.dedup_key, inserted.headers, inserted.body
    FROM [dbo].[chanq_orders] AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
    WHERE q.priority = 1 AND q.visible_at <= @now
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) q
    SET visible_at = @until, fence = q.fence + 1, attempts = q.attempts + 1, leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           inserted.dedup_key, inserted.headers, inserted.body
    FROM [dbo].[chanq_orders] AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
    WHERE q.priority = 0 AND q.visible_at <= @now
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
IF @left > 0
BEGIN
    UPDATE TOP (@left) q
    SET visible_at = @until, fence = q.fence + 1, attempts = q.attempts + 1, leased_by = @by
    OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', deleted.visible_at) AS due_at,
           inserted.dedup_key, inserted.headers, inserted.body
    FROM [dbo].[chanq_orders] AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
    WHERE q.priority = -1 AND q.visible_at <= @now
    OPTION (KEEPFIXED PLAN);
    SET @left = @left - @@ROWCOUNT;
END;
COMMIT TRANSACTION;
