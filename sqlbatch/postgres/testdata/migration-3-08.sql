DO $chanq$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = to_regclass('"public"."chanq_orders__dead"') AND a.attname = 'noticed_at') THEN
    ALTER TABLE "public"."chanq_orders__dead" ADD COLUMN noticed_at bigint;
    ALTER TABLE "public"."chanq_orders__dead" ALTER COLUMN noticed_at SET DEFAULT 0;
  END IF;
END
$chanq$;
