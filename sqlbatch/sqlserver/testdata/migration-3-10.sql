SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders__dead]', N'U'), N'IX_chanq_orders__dead_dedup', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders__dead_dedup] ON [dbo].[chanq_orders__dead] (dedup_key, id) WHERE dedup_key IS NOT NULL;
