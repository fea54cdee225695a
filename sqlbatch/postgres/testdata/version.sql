SELECT version, paused::integer FROM "public"."chanq_queues" WHERE name = 'orders';
