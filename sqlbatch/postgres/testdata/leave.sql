DELETE FROM "public"."chanq__consumers" WHERE id = $1::uuid AND queue = 'orders';
