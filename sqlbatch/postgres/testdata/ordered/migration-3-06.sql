INSERT INTO "public"."chanq__slots" (queue, slot) SELECT 'orders', s FROM generate_series(0, 4 - 1) AS s ON CONFLICT DO NOTHING;
