SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SELECT 'form' AS problem, f.name AS found
FROM (VALUES (N'[dbo].[chanq_orders]'), (N'[dbo].[chanq_orders_dead]'), (N'[dbo].[chanq_orders_done]')) AS f (name)
WHERE COL_LENGTH(f.name, N'fence') <> 8
UNION ALL
SELECT 'durability' AS problem, N'DELAYED_DURABILITY = FORCED' AS found
FROM sys.databases AS d
WHERE d.database_id = DB_ID() AND d.delayed_durability = 2;
