SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET XACT_ABORT OFF;
SET LOCK_TIMEOUT 0;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @due bigint;
BEGIN TRY
    SET @due = (SELECT DATEDIFF_BIG(millisecond, @now, MIN(f.due_at))
    FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS APPLY (
        SELECT TOP (1) q.due_at
        FROM [dbo].[chanq_orders] AS q WITH (READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE q.priority = p.priority AND q.lease_until <= @now
        ORDER BY q.due_at, q.id) AS f
    WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders' AND s.paused = 1));
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() <> 1222
        THROW;
    SET @due = 0;
END CATCH;
SELECT @due AS due_in_ms;
