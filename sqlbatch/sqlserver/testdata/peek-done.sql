-- @n bigint, @after_days int, @after_ms int, @id binary(16)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
SELECT TOP (@n) 'done' AS state, q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       CONVERT(bigint, NULL) AS due_at,
       CONVERT(bigint, NULL) AS lease_until,
       DATEDIFF_BIG(millisecond, '19700101', q.ended_at) AS ended_at,
       CONVERT(bigint, NULL) AS expires_at,
       CONVERT(binary(16), NULL) AS leased_by,
       CONVERT(nvarchar(200), NULL) AS holder,
       q.dedup_key, q.type, q.last_error, q.history, CONVERT(smallint, NULL) AS cause, CONVERT(bigint, NULL) AS fingerprint, q.headers, q.body
FROM (
    SELECT u.id, u.priority, u.fence, u.attempts, u.enqueued_at, u.ended_at, u.dedup_key, u.type, u.last_error, u.history, u.headers, u.body FROM (
    SELECT TOP (@n) e.id, e.priority, e.fence, e.attempts, e.enqueued_at, e.ended_at, e.dedup_key, e.type, e.last_error, e.history, e.headers, e.body
    FROM [dbo].[chanq_orders__done] AS e WITH (READPAST, READCOMMITTEDLOCK, INDEX ([PK_chanq_orders__done]), FORCESEEK)
    WHERE e.ended_at = @after AND e.id < @id
    ORDER BY e.ended_at DESC, e.id DESC
    ) AS u
    UNION ALL
    SELECT u.id, u.priority, u.fence, u.attempts, u.enqueued_at, u.ended_at, u.dedup_key, u.type, u.last_error, u.history, u.headers, u.body FROM (
    SELECT TOP (@n) e.id, e.priority, e.fence, e.attempts, e.enqueued_at, e.ended_at, e.dedup_key, e.type, e.last_error, e.history, e.headers, e.body
    FROM [dbo].[chanq_orders__done] AS e WITH (READPAST, READCOMMITTEDLOCK, INDEX ([PK_chanq_orders__done]), FORCESEEK)
    WHERE e.ended_at < @after
    ORDER BY e.ended_at DESC, e.id DESC
    ) AS u
) AS q
ORDER BY q.ended_at DESC, q.id DESC;
