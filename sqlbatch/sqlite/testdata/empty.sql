SELECT NOT EXISTS (SELECT 1 FROM "main"."chanq_orders") AS empty;
