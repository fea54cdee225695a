-- @n bigint, @mark bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DELETE TOP (@n) q
OUTPUT deleted.id, CONVERT(bigint, 0) AS place
FROM [dbo].[chanq_orders] AS i WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_due]), FORCESEEK)
INNER JOIN [dbo].[chanq_orders] AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = i.id
WHERE i.priority IN (2, 1, 0, -1) AND i.due_at <= @now AND i.lease_until > @now AND i.fence <= @mark AND q.lease_until > @now AND q.fence <= @mark
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
