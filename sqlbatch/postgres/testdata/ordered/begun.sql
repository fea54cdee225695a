SELECT nextval('"public"."chanq_orders__seq"'::regclass) FROM (SELECT pg_advisory_xact_lock_shared(1667788399, hashtext('"public"."chanq_orders"')) AS held OFFSET 0) AS s WHERE s.held IS NOT NULL;
