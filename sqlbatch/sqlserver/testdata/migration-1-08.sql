SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders_dead]', N'U'), N'IX_chanq_orders_dead_key', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders_dead_key] ON [dbo].[chanq_orders_dead] (dedup_key, id) WHERE dedup_key IS NOT NULL;
