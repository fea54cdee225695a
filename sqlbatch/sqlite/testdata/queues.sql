SELECT name FROM "main"."chanq__queues" ORDER BY name;
