SELECT count(*) AS missing FROM unnest(ARRAY['"public"."ix_chanq_orders__due"', '"public"."ux_chanq_orders__dedup"', '"public"."ix_chanq_orders__dead_ended"', '"public"."ix_chanq_orders__dead_cause"', '"public"."ix_chanq_orders__dead_dedup"', '"public"."ix_chanq_orders__dead_new"', '"public"."ix_chanq_orders__done_ended"']) AS i (name)
WHERE to_regclass(i.name) IS NULL;
