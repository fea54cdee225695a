-- @n bigint
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
WITH c AS (
    SELECT TOP (@n) d.id, d.priority, d.fence, d.enqueued_at, d.dedup_key, d.headers, d.body, d.last_error
    FROM [dbo].[chanq_orders_dead] AS d WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_dead_ended]))
    WHERE NOT EXISTS (
        SELECT 1
        FROM [dbo].[chanq_orders] AS q WITH (INDEX ([PK_chanq_orders]), FORCESEEK)
        WHERE q.id = d.id)
      AND NOT EXISTS (
        SELECT 1
        FROM [dbo].[chanq_orders] AS q WITH (INDEX ([UX_chanq_orders_key]), FORCESEEK)
        WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)
      AND NOT EXISTS (
        SELECT 1
        FROM [dbo].[chanq_orders_dead] AS e WITH (INDEX ([IX_chanq_orders_dead_key]), FORCESEEK)
        WHERE e.dedup_key = d.dedup_key AND e.dedup_key IS NOT NULL AND e.id < d.id)
    ORDER BY d.ended_at, d.id
)
DELETE c
OUTPUT deleted.id, deleted.priority, @now, deleted.enqueued_at, deleted.fence + 1, 0,
       deleted.dedup_key, deleted.headers, deleted.body, deleted.last_error
INTO [dbo].[chanq_orders] (id, priority, visible_at, enqueued_at, fence, attempts, dedup_key, headers, body, last_error)
OUTPUT deleted.id;
