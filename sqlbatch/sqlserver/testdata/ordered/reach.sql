-- @rows bigint, @after bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SELECT MIN(CASE WHEN f.n >= @rows THEN f.seq ELSE CONVERT(bigint, 0x7FFFFFFFFFFFFFFF) END) AS seq
FROM [dbo].[chanq_slots] AS s
CROSS APPLY (
    SELECT COUNT_BIG(*) AS n, MAX(e.seq) AS seq
    FROM (
        SELECT TOP (@rows) q.seq
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_due]), FORCESEEK)
        WHERE q.slot = s.slot AND q.seq > @after
        ORDER BY q.seq) AS e) AS f
WHERE s.queue = 'orders'
OPTION (KEEPFIXED PLAN);
