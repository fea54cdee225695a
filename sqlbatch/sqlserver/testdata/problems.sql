SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SELECT 'sets' AS problem, N'the driver returns only the first result set of a batch, and hides errors that follow: its rows must have the methods of database/sql/driver.RowsNextResultSet' AS found;
SELECT 'sets' AS problem, N'' AS found
UNION ALL
SELECT 'form' AS problem, N'[dbo].[chanq_orders]' + N' has no column ' + c.name AS found
FROM (VALUES (N'lapses'), (N'type')) AS c (name)
WHERE COL_LENGTH(N'[dbo].[chanq_orders]', N'fence') IS NOT NULL AND COL_LENGTH(N'[dbo].[chanq_orders]', c.name) IS NULL
UNION ALL
SELECT 'durability' AS problem, N'DELAYED_DURABILITY = FORCED' AS found
FROM sys.databases AS d
WHERE d.database_id = DB_ID() AND d.delayed_durability = 2
UNION ALL
SELECT 'table' AS problem, t.name + N' is not a table' AS found
FROM (VALUES (N'[dbo].[chanq_orders]'), (N'[dbo].[chanq_orders__dead]'), (N'[dbo].[chanq_orders__done]'), (N'[dbo].[chanq__queues]')) AS t (name)
WHERE OBJECT_ID(t.name, N'U') IS NULL AND (OBJECT_ID(t.name, N'V') IS NOT NULL OR OBJECT_ID(t.name, N'SN') IS NOT NULL);
