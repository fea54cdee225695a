SELECT version, paused, slots, holds FROM "main"."chanq_queues" WHERE name = 'orders';
