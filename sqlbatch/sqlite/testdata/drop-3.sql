DROP VIEW IF EXISTS "main"."chanq_orders__messages";
