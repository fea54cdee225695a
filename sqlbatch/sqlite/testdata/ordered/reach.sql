SELECT coalesce((SELECT seq FROM "main"."chanq_orders" WHERE seq > ?1 ORDER BY seq LIMIT 1 OFFSET ?2 - 1), 9223372036854775807);
