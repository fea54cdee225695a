REVOKE ALL ON FUNCTION "public"."chanq_orders_send" FROM PUBLIC;
