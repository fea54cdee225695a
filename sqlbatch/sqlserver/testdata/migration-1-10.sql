IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders_done]', N'U'), N'IX_chanq_orders_done_id', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders_done_id] ON [dbo].[chanq_orders_done] (id);
