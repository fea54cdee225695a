SELECT version, paused FROM "main"."chanq_queues" WHERE name = 'orders';
