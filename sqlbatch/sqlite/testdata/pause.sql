UPDATE "main"."chanq_queues" SET paused = ?1 WHERE name = 'orders';
