-- @rows bigint, @after bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SELECT CASE WHEN f.n >= @rows THEN f.seq ELSE CONVERT(bigint, 0x7FFFFFFFFFFFFFFF) END AS seq
FROM (
    SELECT COUNT_BIG(*) AS n, MAX(e.seq) AS seq
    FROM (
        SELECT TOP (@rows) q.seq
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
        WHERE q.seq > @after
        ORDER BY q.seq) AS e) AS f
OPTION (KEEPFIXED PLAN);
