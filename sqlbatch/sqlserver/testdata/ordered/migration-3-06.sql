DECLARE @drawn bigint = (SELECT CONVERT(bigint, n.current_value) FROM sys.sequences AS n WHERE n.object_id = OBJECT_ID(N'[dbo].[chanq_orders__seq]', N'SO'));
IF @drawn = 0
    SET @drawn = NEXT VALUE FOR [dbo].[chanq_orders__seq];
