DELETE FROM "main"."chanq__slots" WHERE queue = 'orders';
