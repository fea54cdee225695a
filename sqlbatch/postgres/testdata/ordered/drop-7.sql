DELETE FROM "public"."chanq_slots" WHERE queue = 'orders';
