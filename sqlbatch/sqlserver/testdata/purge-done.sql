-- @n bigint, @after_days int, @after_ms int, @after_id binary(16), @before_days int, @before_ms int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
DECLARE @before datetime2(3) = DATEADD(millisecond, @before_ms, DATEADD(day, @before_days, @epoch));
WITH c AS (
    SELECT TOP (@n) id, ended_at
    FROM [dbo].[chanq_orders__done] WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders__done]), FORCESEEK)
    WHERE ended_at >= @after AND (ended_at > @after OR id > @after_id) AND ended_at < @before
    ORDER BY ended_at, id
)
DELETE c
OUTPUT deleted.id, DATEDIFF_BIG(millisecond, '19700101', deleted.ended_at) AS place;
