DELETE FROM "main"."chanq__queues" WHERE name = 'orders';
