DELETE FROM "main"."chanq__consumers" WHERE queue = 'orders';
