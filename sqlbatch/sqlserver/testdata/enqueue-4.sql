-- @i varbinary(8000),@b0 varbinary(max),@b1 varbinary(max),@b2 varbinary(max),@b3 varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, due_at, enqueued_at, body)
SELECT CONVERT(binary(16), SUBSTRING(v.i, 16 * (v.n % 256) + 1, 16)), @now, @now, v.b
FROM (VALUES (@i,0,@b0),(@i,1,@b1),(@i,2,@b2),(@i,3,@b3)) AS v (i, n, b)
WHERE v.n % 256 < DATALENGTH(v.i) / 16;
