SELECT 1 FROM (SELECT count(*) AS columns, sum(name = 'heard_at') AS has FROM pragma_table_info('chanq__consumers', 'main')) WHERE columns > 0 AND has = 0;

ALTER TABLE "main"."chanq__consumers" ADD COLUMN heard_at INTEGER;
