SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID(N'[dbo].[chanq_orders__dead]', N'U'), N'IX_chanq_orders__dead_new', 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX [IX_chanq_orders__dead_new] ON [dbo].[chanq_orders__dead] (noticed_at, ended_at, id) WHERE noticed_at = '19700101';
