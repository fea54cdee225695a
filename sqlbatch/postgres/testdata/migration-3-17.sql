UPDATE "public"."chanq_orders" SET attempts = attempts - (lapses - 7), lapses = 7
WHERE lapses > 7 AND EXISTS (SELECT 1 FROM "public"."chanq__queues" WHERE name = 'orders' AND version < 2);
