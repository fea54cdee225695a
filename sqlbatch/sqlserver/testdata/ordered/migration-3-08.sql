IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders]', N'U'), N'IX_chanq_orders__seq', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders__seq] ON [dbo].[chanq_orders] (seq, slot)
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
