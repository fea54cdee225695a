SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders_dead]', N'U'), N'IX_chanq_orders_dead_line', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders_dead_line] ON [dbo].[chanq_orders_dead] (slot, order_key) WHERE order_key IS NOT NULL;
