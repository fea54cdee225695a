DELETE FROM "main"."chanq__consumers" WHERE id = ?1;
