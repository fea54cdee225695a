LOCK TABLE "public"."chanq_orders", "public"."chanq_orders__dead", "public"."chanq_orders__done" IN ACCESS EXCLUSIVE MODE;
