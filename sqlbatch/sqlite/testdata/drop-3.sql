DROP VIEW IF EXISTS "main"."chanq_orders_messages";
