SELECT name FROM "public"."chanq__queues" ORDER BY name;
