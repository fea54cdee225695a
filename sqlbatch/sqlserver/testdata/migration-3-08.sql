IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders__dead]', N'U'), N'IX_chanq_orders__dead_ended', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders__dead_ended] ON [dbo].[chanq_orders__dead] (ended_at, id);
