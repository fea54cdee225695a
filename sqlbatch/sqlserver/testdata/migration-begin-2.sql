DECLARE @granted int;
EXEC @granted = sys.sp_getapplock @Resource = N'chanq migration', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
IF @granted < 0
BEGIN
    THROW 51871, N'chanq: another migration of this database has not ended within a minute', 1;
END;
