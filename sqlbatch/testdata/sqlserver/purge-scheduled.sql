-- @n bigint
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DELETE TOP (@n) q
OUTPUT deleted.id
FROM [dbo].[chanq_orders] AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_ready]), FORCESEEK)
WHERE q.priority IN (2, 1, 0, -1) AND q.visible_at > @now AND q.leased_by IS NULL;
