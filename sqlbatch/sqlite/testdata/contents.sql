SELECT dedup_key, type, headers, body FROM "main"."chanq_orders" WHERE id = ?1 AND fence = ?2;
