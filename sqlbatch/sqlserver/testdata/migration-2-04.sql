INSERT INTO [dbo].[chanq__heads] WITH (ROWLOCK) (queue, priority, place)
SELECT 'orders', p.priority, 0x00
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq__heads] AS h WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE h.queue = 'orders' AND h.priority = p.priority);
