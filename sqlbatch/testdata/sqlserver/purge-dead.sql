-- @n bigint
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH c AS (
    SELECT TOP (@n) id
    FROM [dbo].[chanq_orders_dead] WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders_dead_ended]))
    ORDER BY ended_at, id
)
DELETE c
OUTPUT deleted.id;
