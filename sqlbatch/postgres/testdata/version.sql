SELECT version, paused::integer, slots, holds FROM "public"."chanq_queues" WHERE name = 'orders';
