DELETE FROM "main"."chanq_queues" WHERE name = 'orders';
