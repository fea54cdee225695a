DELETE FROM "public"."chanq_samples" WHERE queue = 'orders';
