DELETE FROM "main"."chanq_members" WHERE queue = 'orders';
