DELETE FROM "public"."chanq_members" WHERE queue = 'orders';
