REVOKE ALL ON FUNCTION "public"."chanq_orders__send" FROM PUBLIC;
