SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
DECLARE @drawn bigint = (SELECT CONVERT(bigint, n.current_value) FROM sys.sequences AS n WHERE n.object_id = OBJECT_ID(N'[dbo].[chanq_orders_seq]', N'SO'));
DECLARE @granted int;
BEGIN TRANSACTION;
EXEC @granted = sys.sp_getapplock @Resource = N'chanq senders of dbo.orders', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 25;
IF @granted >= 0
BEGIN
    EXEC @granted = sys.sp_releaseapplock @Resource = N'chanq senders of dbo.orders', @LockOwner = N'Transaction';
END;
COMMIT TRANSACTION;
SELECT (@drawn + 1) * 1048576 - 1 AS drawn, CASE WHEN @granted >= 0 THEN '' ELSE 'sender' END AS senders;
