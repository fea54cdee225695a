DELETE FROM "main"."chanq_members" WHERE id = ?1;
