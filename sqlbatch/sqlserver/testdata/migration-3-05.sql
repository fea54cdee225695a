SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders]', N'U'), N'UX_chanq_orders__dedup', 'IndexID') IS NULL
    CREATE UNIQUE NONCLUSTERED INDEX [UX_chanq_orders__dedup] ON [dbo].[chanq_orders] (dedup_key) WHERE dedup_key IS NOT NULL
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
