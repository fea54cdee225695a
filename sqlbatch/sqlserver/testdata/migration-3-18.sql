IF EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WHERE s.name = 'orders' AND s.version < 3)
    UPDATE [dbo].[chanq__queues] SET version = 3, min_version = 2 WHERE name = 'orders';
