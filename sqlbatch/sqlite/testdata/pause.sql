UPDATE "main"."chanq__queues" SET paused = ?1 WHERE name = 'orders';
