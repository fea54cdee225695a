DROP FUNCTION IF EXISTS "public"."chanq_orders_send";
