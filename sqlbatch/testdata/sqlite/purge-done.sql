DELETE FROM "main"."chanq_orders_done" WHERE rowid IN (SELECT rowid FROM "main"."chanq_orders_done" ORDER BY ended_at LIMIT ?1) RETURNING id;
