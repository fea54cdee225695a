DELETE FROM "public"."chanq__samples" WHERE queue = 'orders';
