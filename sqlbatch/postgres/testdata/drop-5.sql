DROP TABLE "public"."chanq_orders", "public"."chanq_orders_dead", "public"."chanq_orders_done";
