-- @n bigint, @age_days int, @age_ms int
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @cut datetime2(3) = DATEADD(millisecond, -@age_ms, DATEADD(day, -@age_days, SYSUTCDATETIME()));
WITH c AS (
    SELECT TOP (@n) id
    FROM [dbo].[chanq_orders_done] WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders_done]), FORCESEEK)
    WHERE ended_at <= @cut
    ORDER BY ended_at, id
)
DELETE c
OUTPUT deleted.id;
