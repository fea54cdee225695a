DELETE FROM "main"."chanq_orders_dead" WHERE rowid IN (SELECT rowid FROM "main"."chanq_orders_dead" ORDER BY ended_at LIMIT ?1) RETURNING id;
