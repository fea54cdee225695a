SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SELECT 'form' AS problem, f.name AS found
FROM (VALUES (N'[dbo].[chanq_orders]'), (N'[dbo].[chanq_orders_dead]'), (N'[dbo].[chanq_orders_done]')) AS f (name)
WHERE COL_LENGTH(f.name, N'fence') <> 8
UNION ALL
SELECT 'form' AS problem, N'[dbo].[chanq_orders]' + N' has no column ' + c.name AS found
FROM (VALUES (N'lease_until'), (N'crashes')) AS c (name)
WHERE COL_LENGTH(N'[dbo].[chanq_orders]', N'fence') IS NOT NULL AND COL_LENGTH(N'[dbo].[chanq_orders]', c.name) IS NULL
UNION ALL
SELECT 'durability' AS problem, N'DELAYED_DURABILITY = FORCED' AS found
FROM sys.databases AS d
WHERE d.database_id = DB_ID() AND d.delayed_durability = 2;
