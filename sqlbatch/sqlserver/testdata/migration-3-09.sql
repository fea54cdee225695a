IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders__dead]', N'U'), N'IX_chanq_orders__dead_cause', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders__dead_cause] ON [dbo].[chanq_orders__dead] (cause, fingerprint, ended_at, id);
