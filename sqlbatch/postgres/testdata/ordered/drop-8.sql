DROP SEQUENCE "public"."chanq_orders__seq";
