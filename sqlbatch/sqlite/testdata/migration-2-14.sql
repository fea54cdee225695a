UPDATE "main"."chanq__queues" SET version = 2, min_version = 2 WHERE name = 'orders' AND version < 2;
