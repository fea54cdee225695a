SELECT name FROM "public"."chanq_queues" ORDER BY name;
