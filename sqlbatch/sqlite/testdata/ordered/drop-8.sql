DELETE FROM "main"."chanq_slots" WHERE queue = 'orders';
