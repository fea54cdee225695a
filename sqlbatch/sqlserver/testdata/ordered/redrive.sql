-- @n bigint, @after_days int, @after_ms int, @after_id binary(16), @before_days int, @before_ms int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
DECLARE @before datetime2(3) = DATEADD(millisecond, @before_ms, DATEADD(day, @before_days, @epoch));
DECLARE @chosen TABLE (id binary(16) NOT NULL PRIMARY KEY CLUSTERED);
BEGIN TRANSACTION;
INSERT INTO @chosen (id)
SELECT TOP (@n) d.id
FROM [dbo].[chanq_orders__dead] AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_ended]), FORCESEEK)
INNER JOIN [dbo].[chanq_orders__dead] AS d WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON d.id = i.id AND d.ended_at = i.ended_at
WHERE i.ended_at >= @after AND (i.ended_at > @after OR i.id > @after_id) AND i.ended_at < @before
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS q WITH (INDEX ([PK_chanq_orders]), FORCESEEK)
    WHERE q.id = d.id)
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS q WITH (INDEX ([UX_chanq_orders__dedup]), FORCESEEK)
    WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders__dead] AS e WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_dedup]), FORCESEEK)
    WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id AND e.ended_at < @before)
ORDER BY i.ended_at, i.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, priority, due_at, enqueued_at, fence, dedup_key, [type], headers, body, last_error, history, slot, seq, order_key)
SELECT d.id, d.priority, @now, d.enqueued_at, d.fence + 1, d.dedup_key, d.type, d.headers, d.body, d.last_error, d.history, d.slot, d.seq, d.order_key
FROM @chosen AS a
INNER JOIN [dbo].[chanq_orders__dead] AS d WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON d.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
DELETE d
OUTPUT deleted.id, DATEDIFF_BIG(millisecond, '19700101', deleted.ended_at) AS place
FROM @chosen AS a
INNER JOIN [dbo].[chanq_orders__dead] AS d WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON d.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
IF EXISTS (SELECT 1 FROM @chosen AS c)
    UPDATE s
    SET redriven = CONVERT(bigint, SUBSTRING(CONVERT(binary(16), NEWID()), 9, 7))
    FROM [dbo].[chanq__queues] AS s WITH (ROWLOCK)
    WHERE s.name = 'orders';
COMMIT TRANSACTION;
