-- @i varbinary(8000),@m0 varbinary(117),@k0 varbinary(200),@h0 varbinary(max),@b0 varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, priority, due_at, enqueued_at, expires_at, [type], dedup_key, headers, body)
SELECT CONVERT(binary(16), SUBSTRING(v.i, 16 * (v.n % 256) + 1, 16)),
       CONVERT(smallint, SUBSTRING(v.m, 1, 1)) - 1,
       DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 6, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 2, 4)), @now)),
       @now,
       CASE WHEN SUBSTRING(v.m, 10, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 14, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 10, 4)), @now)) END,
       CASE WHEN DATALENGTH(v.m) > 17 THEN SUBSTRING(v.m, 18, 100) END, v.k, v.h, v.b
FROM (VALUES (@i,0,@m0,@k0,@h0,@b0)) AS v (i, n, m, k, h, b)
WHERE v.n % 256 < DATALENGTH(v.i) / 16;
