-- @n bigint, @after bigint, @upto bigint, @mark bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DELETE q
OUTPUT deleted.id, deleted.seq AS place
FROM (
    SELECT TOP (@n) u.id
    FROM [dbo].[chanq_orders] AS r WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
    INNER JOIN [dbo].[chanq_orders] AS u WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON u.id = r.id
    WHERE r.seq > @after AND r.seq <= @upto AND r.due_at <= @now AND r.lease_until > @now AND r.fence <= @mark AND u.due_at <= @now AND u.lease_until > @now AND u.fence <= @mark
    ORDER BY r.seq
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
