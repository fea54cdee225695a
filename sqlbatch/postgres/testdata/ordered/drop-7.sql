DELETE FROM "public"."chanq__slots" WHERE queue = 'orders';
