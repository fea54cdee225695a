-- @i varbinary(8000),@b0 varbinary(max),@b1 varbinary(max),@b2 varbinary(max),@b3 varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @new TABLE (n int NOT NULL PRIMARY KEY CLUSTERED);
INSERT INTO @new (n)
SELECT v.n
FROM (VALUES (@i,0),(@i,1),(@i,2),(@i,3)) AS v (i, n)
WHERE v.n % 256 < DATALENGTH(v.i) / 16
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS e WITH (READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK)
    WHERE e.id = CONVERT(binary(16), SUBSTRING(v.i, 16 * (v.n % 256) + 1, 16)))
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
DECLARE @now datetime2(3) = SYSUTCDATETIME();
INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, due_at, enqueued_at, body)
OUTPUT inserted.id
SELECT CONVERT(binary(16), SUBSTRING(v.i, 16 * (v.n % 256) + 1, 16)), @now, @now, v.b
FROM (VALUES (@i,0,@b0),(@i,1,@b1),(@i,2,@b2),(@i,3,@b3)) AS v (i, n, b)
INNER JOIN @new AS w ON w.n = v.n
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
