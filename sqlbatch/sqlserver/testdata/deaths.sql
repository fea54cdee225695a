-- @n bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT TOP (@n) d.cause, d.fingerprint, DATEDIFF_BIG(millisecond, d.ended_at, @now) / 60000 AS ago
FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_ended]), FORCESEEK)
WHERE d.ended_at > DATEADD(millisecond, -3600000, @now)
ORDER BY d.ended_at DESC;
