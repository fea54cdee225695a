UPDATE q
SET attempts = q.attempts - (q.lapses - 7), lapses = 7
FROM [dbo].[chanq_orders] AS q
WHERE q.lapses > 7 AND EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WHERE s.name = 'orders' AND s.version < 2);
