DROP VIEW IF EXISTS "public"."chanq_orders__messages";
