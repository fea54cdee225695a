-- @i varbinary(8000),@m0 varbinary(315),@k0 varbinary(200),@h0 varbinary(max),@b0 varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @gate nvarchar(255) = N'chanq senders of ' + CONVERT(nvarchar(11), CHECKSUM(N'dbo')) + N'.orders';
DECLARE @granted int;
DECLARE @number bigint;
BEGIN TRANSACTION;
EXEC @granted = sys.sp_getapplock @Resource = @gate, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = 10000;
IF @granted < 0
BEGIN
    THROW 51873, N'chanq: the application lock of senders was not granted within ten seconds', 1;
END;
SET @number = NEXT VALUE FOR [dbo].[chanq_orders__seq];
INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, due_at, enqueued_at, expires_at, slot, seq, fence, order_key, [type], dedup_key, headers, body)
SELECT CONVERT(binary(16), SUBSTRING(v.i, 16 * (v.n % 256) + 1, 16)),
       @now,
       @now,
       CASE WHEN SUBSTRING(v.m, 1, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 5, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 1, 4)), @now)) END,
       CONVERT(smallint, SUBSTRING(v.m, 9, 2)),
       @number * 1048576 + CONVERT(int, SUBSTRING(v.m, 11, 4)),
       @number * 1048576 + CONVERT(int, SUBSTRING(v.m, 11, 4)),
       CASE WHEN SUBSTRING(v.m, 15, 1) <> 0x00 THEN SUBSTRING(v.m, 16, CONVERT(int, SUBSTRING(v.m, 15, 1))) END,
       CASE WHEN DATALENGTH(v.m) > 15 + CONVERT(int, SUBSTRING(v.m, 15, 1)) THEN SUBSTRING(v.m, 16 + CONVERT(int, SUBSTRING(v.m, 15, 1)), 100) END, v.k, v.h, v.b
FROM (VALUES (@i,0,@m0,@k0,@h0,@b0)) AS v (i, n, m, k, h, b)
WHERE v.n % 256 < DATALENGTH(v.i) / 16;
EXEC @granted = sys.sp_releaseapplock @Resource = @gate, @LockOwner = N'Transaction';
COMMIT TRANSACTION;
