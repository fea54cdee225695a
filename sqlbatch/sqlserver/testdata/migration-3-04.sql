IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders]', N'U'), N'IX_chanq_orders__due', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders__due] ON [dbo].[chanq_orders] (priority, due_at, id)
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
