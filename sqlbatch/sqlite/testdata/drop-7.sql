DELETE FROM "main"."chanq_samples" WHERE queue = 'orders';
