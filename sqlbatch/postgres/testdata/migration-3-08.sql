DO $chanq$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = to_regclass('"public"."chanq_orders__dead"') AND a.attname = 'noticed_at') THEN
    ALTER TABLE "public"."chanq_orders__dead" ADD COLUMN noticed_at bigint;
    ALTER TABLE "public"."chanq_orders__dead" ALTER COLUMN noticed_at SET DEFAULT 0;
    ALTER TABLE "public"."chanq_orders" ADD COLUMN history text;
    ALTER TABLE "public"."chanq_orders__dead" ADD COLUMN history text;
    ALTER TABLE "public"."chanq_orders__done" ADD COLUMN history text;
  END IF;
END
$chanq$;
