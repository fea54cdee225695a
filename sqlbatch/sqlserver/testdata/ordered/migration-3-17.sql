SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders__dead]', N'U'), N'IX_chanq_orders__dead_key', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders__dead_key] ON [dbo].[chanq_orders__dead] (slot, order_key) WHERE order_key IS NOT NULL;
