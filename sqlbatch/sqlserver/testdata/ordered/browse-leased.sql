-- @n bigint, @after bigint, @upto bigint, @type varbinary(max), @order_key varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT TOP (@n) CASE WHEN q.lease_until > @now THEN 'leased' WHEN q.due_at <= @now THEN 'ready' ELSE 'scheduled' END AS state, q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', q.due_at) AS due_at,
       CASE WHEN q.leased_by IS NOT NULL THEN DATEDIFF_BIG(millisecond, '19700101', q.lease_until) END AS lease_until,
       CONVERT(bigint, NULL) AS ended_at,
       DATEDIFF_BIG(millisecond, '19700101', q.expires_at) AS expires_at,
       q.leased_by,
       (SELECT m.name FROM [dbo].[chanq__consumers] AS m WITH (READPAST, READCOMMITTEDLOCK) WHERE m.id = q.leased_by) AS holder,
       q.dedup_key, q.type, q.last_error, q.history, CONVERT(smallint, NULL) AS cause, CONVERT(bigint, NULL) AS fingerprint, CONVERT(varbinary(max), NULL) AS headers, CONVERT(bigint, DATALENGTH(q.body)) AS body, q.slot, q.seq, q.order_key
FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
WHERE q.seq > @after AND q.seq <= @upto AND q.due_at <= @now AND q.lease_until > @now
      AND (DATALENGTH(@type) = 0 OR q.type = @type) AND (DATALENGTH(@order_key) = 0 OR q.order_key = @order_key)
ORDER BY q.seq
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
