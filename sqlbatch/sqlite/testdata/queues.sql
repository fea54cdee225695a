SELECT name FROM "main"."chanq_queues" ORDER BY name;
