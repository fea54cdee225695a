SELECT count(*) AS missing FROM unnest(ARRAY['"public"."ix_chanq_orders__seq"', '"public"."ix_chanq_orders__dead_key"', '"public"."ux_chanq_orders__dedup"', '"public"."ix_chanq_orders__dead_ended"', '"public"."ix_chanq_orders__dead_cause"', '"public"."ix_chanq_orders__dead_dedup"', '"public"."ix_chanq_orders__done_ended"']) AS i (name)
WHERE to_regclass(i.name) IS NULL;
