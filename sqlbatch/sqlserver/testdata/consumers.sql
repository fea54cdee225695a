SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT m.id, m.name, m.host, m.process,
       DATEDIFF_BIG(millisecond, '19700101', m.since) AS since,
       DATEDIFF_BIG(millisecond, '19700101', m.until) AS until
FROM [dbo].[chanq__consumers] AS m
WHERE m.queue = 'orders' AND m.until > @now
ORDER BY m.since, m.id;
