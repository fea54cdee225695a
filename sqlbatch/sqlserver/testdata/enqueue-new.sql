-- @m0 varbinary(133), @k0 varbinary(200), @h0 varbinary(max), @b0 varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, priority, due_at, enqueued_at, expires_at, dedup_key, [type], headers, body)
OUTPUT inserted.id
SELECT CONVERT(binary(16), SUBSTRING(v.m, 1, 16)),
       CONVERT(smallint, SUBSTRING(v.m, 17, 1)) - 1,
       DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 22, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 18, 4)), @now)),
       @now,
       CASE WHEN SUBSTRING(v.m, 26, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 30, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 26, 4)), @now)) END,
       v.k, CASE WHEN DATALENGTH(v.m) > 33 THEN SUBSTRING(v.m, 34, 100) END, v.h, v.b
FROM (VALUES (@m0, @k0, @h0, @b0)) AS v (m, k, h, b)
WHERE v.m IS NOT NULL
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS e WITH (READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK)
    WHERE e.id = CONVERT(binary(16), SUBSTRING(v.m, 1, 16)))
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS e WITH (READCOMMITTEDLOCK, INDEX ([UX_chanq_orders__dedup]), FORCESEEK)
    WHERE e.dedup_key = v.k AND e.dedup_key IS NOT NULL)
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
