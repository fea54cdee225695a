SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET LOCK_TIMEOUT 100;
DECLARE @now bigint = DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME());
DELETE h
FROM [dbo].[chanq__samples] AS h WITH (READPAST, UPDLOCK, ROWLOCK)
WHERE h.queue = 'orders' AND h.step = 10 AND h.at < @now - CONVERT(bigint, 1000) * 7200;
DELETE h
FROM [dbo].[chanq__samples] AS h WITH (READPAST, UPDLOCK, ROWLOCK)
WHERE h.queue = 'orders' AND h.step = 60 AND h.at < @now - CONVERT(bigint, 1000) * 172800;
DELETE h
FROM [dbo].[chanq__samples] AS h WITH (READPAST, UPDLOCK, ROWLOCK)
WHERE h.queue = 'orders' AND h.step = 3600 AND h.at < @now - CONVERT(bigint, 1000) * 7776000;
