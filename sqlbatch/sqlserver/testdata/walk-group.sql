-- @n bigint, @after_days int, @after_ms int, @after_id binary(16), @before_days int, @before_ms int, @cause smallint, @fingerprint bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
DECLARE @before datetime2(3) = DATEADD(millisecond, @before_ms, DATEADD(day, @before_days, @epoch));
SELECT TOP (@n) q.id, DATEDIFF_BIG(millisecond, '19700101', q.ended_at) AS place, q.type
FROM (
    SELECT u.id, u.ended_at, u.type FROM (
        SELECT TOP (@n) d.id, d.ended_at, d.type
        FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK)
        WHERE d.cause = @cause AND d.fingerprint = @fingerprint AND d.ended_at = @after AND d.id > @after_id AND d.ended_at < @before
        ORDER BY d.cause, d.fingerprint, d.ended_at, d.id) AS u
    UNION ALL
    SELECT u.id, u.ended_at, u.type FROM (
        SELECT TOP (@n) d.id, d.ended_at, d.type
        FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK)
        WHERE d.cause = @cause AND d.fingerprint = @fingerprint AND d.ended_at > @after AND d.ended_at < @before
        ORDER BY d.cause, d.fingerprint, d.ended_at, d.id) AS u
) AS q
ORDER BY q.ended_at, q.id;
