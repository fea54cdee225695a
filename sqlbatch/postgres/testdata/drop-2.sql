DELETE FROM "public"."chanq_queues" WHERE name = 'orders';
