-- @n bigint
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH c AS (
    SELECT TOP (@n) id
    FROM [dbo].[chanq_orders_done] WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders_done]))
    ORDER BY ended_at, id
)
DELETE c
OUTPUT deleted.id;
