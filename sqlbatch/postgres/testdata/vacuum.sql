VACUUM (SKIP_LOCKED, TRUNCATE OFF, PARALLEL 0) "public"."chanq_orders";
