SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @consumers bigint = (SELECT COUNT_BIG(*) FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) WHERE m.queue = 'orders' AND m.until > @now);
SELECT s.slot, s.consumer AS owner,
       CASE WHEN s.consumer IS NULL THEN NULL WHEN g.until IS NULL THEN CONVERT(bigint, 0) ELSE DATEDIFF_BIG(millisecond, @now, g.until) END AS left_ms,
       s.fence, @consumers AS consumers
FROM [dbo].[chanq__slots] AS s WITH (READUNCOMMITTED)
CROSS APPLY (SELECT MIN(m.until) AS until FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) WHERE m.id = s.consumer) AS g
WHERE s.queue = 'orders'
ORDER BY s.slot
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
