UPDATE "public"."chanq__queues" SET paused = $1::integer = 1 WHERE name = 'orders';
