IF COL_LENGTH(N'[dbo].[chanq_orders__dead]', N'noticed_at') IS NULL
    ALTER TABLE [dbo].[chanq_orders__dead] ADD noticed_at datetime2(3) NULL CONSTRAINT [DF_chanq_orders__dead_noticed_at] DEFAULT ('19700101');
