-- @id binary(16)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT CASE WHEN q.lease_until > @now THEN 'leased' WHEN q.due_at <= @now THEN 'ready' ELSE 'scheduled' END AS state,
       q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', q.due_at) AS due_at,
       CASE WHEN q.leased_by IS NOT NULL THEN DATEDIFF_BIG(millisecond, '19700101', q.lease_until) END AS lease_until,
       CONVERT(bigint, NULL) AS ended_at,
       DATEDIFF_BIG(millisecond, '19700101', q.expires_at) AS expires_at,
       q.leased_by,
       (SELECT m.name FROM [dbo].[chanq__consumers] AS m WITH (READPAST, READCOMMITTEDLOCK) WHERE m.id = q.leased_by) AS holder,
       q.dedup_key, q.type, q.last_error, q.history, CONVERT(smallint, NULL) AS cause, CONVERT(bigint, NULL) AS fingerprint, q.headers, q.body, q.slot, q.seq, q.order_key
FROM [dbo].[chanq_orders] AS q WITH (INDEX ([PK_chanq_orders]), FORCESEEK)
WHERE q.id = @id
UNION ALL
SELECT 'dead' AS state, q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       CONVERT(bigint, NULL) AS due_at,
       CONVERT(bigint, NULL) AS lease_until,
       DATEDIFF_BIG(millisecond, '19700101', q.ended_at) AS ended_at,
       CONVERT(bigint, NULL) AS expires_at,
       CONVERT(binary(16), NULL) AS leased_by,
       CONVERT(nvarchar(200), NULL) AS holder,
       q.dedup_key, q.type, q.last_error, q.history, q.cause, q.fingerprint, q.headers, q.body, q.slot, q.seq, q.order_key
FROM [dbo].[chanq_orders__dead] AS q WITH (INDEX ([PK_chanq_orders__dead]), FORCESEEK)
WHERE q.id = @id
UNION ALL
SELECT d.state, d.id, d.priority, d.fence, d.attempts, d.enqueued_at, d.due_at, d.lease_until, d.ended_at, d.expires_at,
       d.leased_by, d.holder, d.dedup_key, d.type, d.last_error, d.history, d.cause, d.fingerprint, d.headers, d.body, d.slot, d.seq, d.order_key FROM (
    SELECT TOP (1) 'done' AS state, q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       CONVERT(bigint, NULL) AS due_at,
       CONVERT(bigint, NULL) AS lease_until,
       DATEDIFF_BIG(millisecond, '19700101', q.ended_at) AS ended_at,
       CONVERT(bigint, NULL) AS expires_at,
       CONVERT(binary(16), NULL) AS leased_by,
       CONVERT(nvarchar(200), NULL) AS holder,
       q.dedup_key, q.type, q.last_error, q.history, CONVERT(smallint, NULL) AS cause, CONVERT(bigint, NULL) AS fingerprint, q.headers, q.body, q.slot, q.seq, q.order_key
FROM [dbo].[chanq_orders__done] AS q WITH (INDEX ([IX_chanq_orders__done_id]), FORCESEEK)
    WHERE q.id = @id
    ORDER BY q.ended_at DESC
) AS d;
