IF COL_LENGTH(N'[dbo].[chanq_orders__dead]', N'noticed_at') IS NULL
BEGIN
    ALTER TABLE [dbo].[chanq_orders__dead] ADD noticed_at datetime2(3) NULL CONSTRAINT [DF_chanq_orders__dead_noticed_at] DEFAULT ('19700101'), history nvarchar(2000) NULL;
    ALTER TABLE [dbo].[chanq_orders] ADD history nvarchar(2000) NULL;
    ALTER TABLE [dbo].[chanq_orders__done] ADD history nvarchar(2000) NULL;
END;
