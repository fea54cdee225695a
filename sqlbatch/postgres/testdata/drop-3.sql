DROP VIEW IF EXISTS "public"."chanq_orders_messages";
