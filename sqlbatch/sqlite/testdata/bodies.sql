SELECT id, headers, body FROM "main"."chanq_orders" WHERE id IN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?1)) SELECT substr(?1, o, 16) FROM n);
