UPDATE "public"."chanq__queues" SET version = 3, min_version = 2 WHERE name = 'orders' AND version < 3;
