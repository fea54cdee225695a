DELETE FROM "public"."chanq__queues" WHERE name = 'orders';
