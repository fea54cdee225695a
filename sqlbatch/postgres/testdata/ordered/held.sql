WITH RECURSIVE k AS (
  SELECT a.slot, 1 AS n, (SELECT d.order_key FROM "public"."chanq_orders_dead" AS d WHERE d.slot = a.slot AND d.order_key IS NOT NULL ORDER BY d.order_key LIMIT 1) AS order_key
  FROM unnest($1::smallint[]) AS a (slot)
  UNION ALL
  SELECT k.slot, k.n + 1, (SELECT d.order_key FROM "public"."chanq_orders_dead" AS d WHERE d.slot = k.slot AND d.order_key > k.order_key ORDER BY d.order_key LIMIT 1)
  FROM k WHERE k.n < $2::integer AND k.order_key IS NOT NULL
)
SELECT k.slot, convert_to(k.order_key, getdatabaseencoding()) AS order_key
FROM k WHERE k.n <= $2::integer AND k.order_key IS NOT NULL;
