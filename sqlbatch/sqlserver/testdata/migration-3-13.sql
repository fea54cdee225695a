IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders__done]', N'U'), N'IX_chanq_orders__done_id', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders__done_id] ON [dbo].[chanq_orders__done] (id);
