SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders]', N'U'), N'IX_chanq_orders_ready', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders_ready] ON [dbo].[chanq_orders] (priority, visible_at, id) INCLUDE (lapses) WHERE leased_by IS NULL
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
