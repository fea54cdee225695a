IF EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WHERE s.name = 'orders' AND s.version < 2)
    UPDATE [dbo].[chanq_orders] SET attempts = attempts - (lapses - 7), lapses = 7 WHERE lapses > 7;
