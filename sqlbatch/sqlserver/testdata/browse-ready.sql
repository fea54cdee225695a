-- @n bigint, @after_days int, @after_ms int, @id binary(16), @lane int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @first datetime2(3) = '00010101';
DECLARE @last datetime2(3) = '99991231 23:59:59.999';
DECLARE @epoch datetime2(3) = '19700101';
DECLARE @after datetime2(3) = DATEADD(millisecond, @after_ms, DATEADD(day, @after_days, @epoch));
SELECT TOP (@n) CASE WHEN q.lease_until > @now THEN 'leased' WHEN q.due_at <= @now THEN 'ready' ELSE 'scheduled' END AS state, q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', q.due_at) AS due_at,
       CASE WHEN q.leased_by IS NOT NULL THEN DATEDIFF_BIG(millisecond, '19700101', q.lease_until) END AS lease_until,
       CONVERT(bigint, NULL) AS ended_at,
       DATEDIFF_BIG(millisecond, '19700101', q.expires_at) AS expires_at,
       q.leased_by,
       (SELECT m.name FROM [dbo].[chanq__consumers] AS m WITH (READPAST, READCOMMITTEDLOCK) WHERE m.id = q.leased_by) AS holder,
       q.dedup_key, q.type, q.last_error, q.history, CONVERT(smallint, NULL) AS cause, CONVERT(bigint, NULL) AS fingerprint, CONVERT(varbinary(max), NULL) AS headers, CONVERT(bigint, DATALENGTH(q.body)) AS body
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS APPLY (
    SELECT u.id, u.priority, u.fence, u.attempts, u.enqueued_at, u.due_at, u.lease_until, u.expires_at,
           u.leased_by, u.dedup_key, u.type, u.last_error, u.history, u.headers, u.body FROM (
    SELECT TOP (@n) l.id, l.priority, l.fence, l.attempts, l.enqueued_at, l.due_at, l.lease_until, l.expires_at,
           l.leased_by, l.dedup_key, l.type, l.last_error, l.history, l.headers, l.body
    FROM [dbo].[chanq_orders] AS l WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
    WHERE l.priority = p.priority AND l.lease_until IS NOT NULL AND 2 - p.priority = @lane AND @after <= @now AND l.due_at = @after AND l.id > @id
    ORDER BY l.due_at, l.id
    ) AS u
    UNION ALL
    SELECT u.id, u.priority, u.fence, u.attempts, u.enqueued_at, u.due_at, u.lease_until, u.expires_at,
           u.leased_by, u.dedup_key, u.type, u.last_error, u.history, u.headers, u.body FROM (
    SELECT TOP (@n) l.id, l.priority, l.fence, l.attempts, l.enqueued_at, l.due_at, l.lease_until, l.expires_at,
           l.leased_by, l.dedup_key, l.type, l.last_error, l.history, l.headers, l.body
    FROM [dbo].[chanq_orders] AS l WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
    WHERE l.priority = p.priority AND l.lease_until IS NOT NULL AND l.due_at > CASE WHEN 2 - p.priority = @lane THEN @after WHEN 2 - p.priority > @lane THEN @first ELSE @last END AND l.due_at <= @now
    ORDER BY l.due_at, l.id
    ) AS u
) AS q
ORDER BY q.priority DESC, q.due_at, q.id;
