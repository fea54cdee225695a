WITH RECURSIVE k(slot, n, order_key) AS (
  SELECT a.slot, 1, (SELECT min(d.order_key) FROM "main"."chanq_orders_dead" AS d WHERE d.slot = a.slot AND d.order_key IS NOT NULL)
  FROM (SELECT slot FROM "main"."chanq_slots" WHERE queue = 'orders' AND slot IN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 4 FROM n WHERE o + 4 < length(?2)) SELECT CAST(substr(?2, o, 4) AS INTEGER) FROM n WHERE length(?2) > 1)) AS a
  UNION ALL
  SELECT k.slot, k.n + 1, (SELECT min(d.order_key) FROM "main"."chanq_orders_dead" AS d WHERE d.slot = k.slot AND d.order_key > k.order_key)
  FROM k WHERE k.n < ?1 AND k.order_key IS NOT NULL
)
SELECT slot, order_key FROM k WHERE n <= ?1 AND order_key IS NOT NULL;
