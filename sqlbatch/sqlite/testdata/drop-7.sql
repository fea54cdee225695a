DELETE FROM "main"."chanq__samples" WHERE queue = 'orders';
