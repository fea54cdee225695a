SELECT 1 FROM (SELECT count(*) AS columns, sum(name = 'noticed_at') AS has FROM pragma_table_info('chanq_orders__dead', 'main')) WHERE columns > 0 AND has = 0;

ALTER TABLE "main"."chanq_orders__dead" ADD COLUMN noticed_at INTEGER;

ALTER TABLE "main"."chanq_orders" ADD COLUMN history TEXT;

ALTER TABLE "main"."chanq_orders__dead" ADD COLUMN history TEXT;

ALTER TABLE "main"."chanq_orders__done" ADD COLUMN history TEXT;
