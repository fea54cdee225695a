DROP SEQUENCE "public"."chanq_orders_seq";
