DELETE FROM "main"."chanq__consumers" WHERE id = ?1 AND queue = 'orders';
