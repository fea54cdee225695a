IF COL_LENGTH(N'[dbo].[chanq__consumers]', N'heard_at') IS NULL
    ALTER TABLE [dbo].[chanq__consumers] ADD heard_at datetime2(3) NULL;
