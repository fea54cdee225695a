SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SELECT COUNT(*) AS missing
FROM (VALUES (N'[dbo].[chanq_orders]', N'IX_chanq_orders__due'), (N'[dbo].[chanq_orders]', N'IX_chanq_orders__seq'), (N'[dbo].[chanq_orders__dead]', N'IX_chanq_orders__dead_key'), (N'[dbo].[chanq__slots]', N''), (N'[dbo].[chanq_orders]', N'UX_chanq_orders__dedup'), (N'[dbo].[chanq_orders__dead]', N'IX_chanq_orders__dead_ended'), (N'[dbo].[chanq_orders__dead]', N'IX_chanq_orders__dead_cause'), (N'[dbo].[chanq_orders__dead]', N'IX_chanq_orders__dead_dedup'), (N'[dbo].[chanq_orders__dead]', N'IX_chanq_orders__dead_new'), (N'[dbo].[chanq_orders__done]', N'IX_chanq_orders__done_id'),
  (N'[dbo].[chanq__consumers]', N''), (N'[dbo].[chanq__samples]', N''), (N'[dbo].[chanq__log]', N'')) AS i (of_table, name)
WHERE CASE WHEN i.name = N'' THEN OBJECT_ID(i.of_table, N'U') ELSE INDEXPROPERTY(OBJECT_ID(i.of_table, N'U'), i.name, 'IndexID') END IS NULL
  AND (OBJECT_ID(i.of_table, N'U') IS NOT NULL OR HAS_PERMS_BY_NAME(N'[dbo]', 'SCHEMA', 'ALTER') = 1);
