WITH RECURSIVE s(slot) AS (SELECT 0 UNION ALL SELECT slot + 1 FROM s WHERE slot + 1 < 4)
INSERT INTO "main"."chanq__slots" (queue, slot) SELECT 'orders', slot FROM s WHERE true ON CONFLICT DO NOTHING;
