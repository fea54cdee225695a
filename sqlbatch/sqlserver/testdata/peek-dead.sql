-- @n bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SELECT TOP (@n) 'dead' AS state, q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', q.ended_at) AS due_at,
       CONVERT(bigint, NULL) AS expires_at,
       CONVERT(binary(16), NULL) AS leased_by,
       CONVERT(nvarchar(200), NULL) AS holder,
       q.dedup_key, q.last_error, q.headers, q.body
FROM [dbo].[chanq_orders_dead] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_dead_ended]))
ORDER BY q.ended_at DESC, q.id DESC;
