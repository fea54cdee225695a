IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders_dead]', N'U'), N'IX_chanq_orders_dead_ended', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders_dead_ended] ON [dbo].[chanq_orders_dead] (ended_at, id);
