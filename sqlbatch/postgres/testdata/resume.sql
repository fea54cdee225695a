UPDATE "public"."chanq_queues" SET paused = $1::integer = 1 WHERE name = 'orders';
