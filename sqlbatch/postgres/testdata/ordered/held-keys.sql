SELECT a.o, CASE WHEN (SELECT holds FROM "public"."chanq__queues" WHERE name = 'orders') = 1 AND (SELECT 1 FROM "public"."chanq_orders__dead" AS d WHERE d.slot = a.slot AND d.order_key = convert_from(a.k, 'UTF8') LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END AS held,
  (SELECT redriven FROM "public"."chanq__queues" WHERE name = 'orders') AS redriven
FROM unnest($1::smallint[], $2::bytea[]) WITH ORDINALITY AS a (slot, k, o);
