DELETE FROM "public"."chanq__consumers" WHERE queue = 'orders';
