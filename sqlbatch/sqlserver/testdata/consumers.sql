SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT m.id, m.name, m.host, m.process,
       DATEDIFF_BIG(millisecond, '19700101', m.since) AS since,
       DATEDIFF_BIG(millisecond, '19700101', m.until) AS until,
       DATEDIFF_BIG(millisecond, '19700101', CASE WHEN m.heard_at IS NULL THEN @now ELSE m.heard_at END) AS heard_at
FROM [dbo].[chanq__consumers] AS m
WHERE m.queue = 'orders' AND m.until > @now
ORDER BY m.since, m.id;
