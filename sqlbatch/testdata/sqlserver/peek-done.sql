-- @n bigint
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT TOP (@n) 'done' AS state, q.id, q.priority, q.fence, q.attempts,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', q.ended_at) AS due_at,
       CONVERT(nvarchar(200), NULL) AS leased_by, q.dedup_key, q.last_error, q.headers, q.body
FROM [dbo].[chanq_orders_done] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([PK_chanq_orders_done]))
ORDER BY q.ended_at DESC, q.id DESC;
