DROP FUNCTION IF EXISTS "public"."chanq_orders__send";
