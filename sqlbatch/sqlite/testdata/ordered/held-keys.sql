SELECT s.key + 1, (SELECT holds FROM "main"."chanq__queues" WHERE name = 'orders') AND EXISTS (SELECT 1 FROM "main"."chanq_orders__dead" AS d WHERE d.slot = s.value AND d.order_key = k.value) AS held, (SELECT redriven FROM "main"."chanq__queues" WHERE name = 'orders') AS redriven
FROM json_each(?1) AS s CROSS JOIN json_each(?2) AS k ON k.key = s.key;
