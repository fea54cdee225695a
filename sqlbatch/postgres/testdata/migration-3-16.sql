DO $chanq$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = to_regclass('"public"."chanq__consumers"') AND a.attname = 'heard_at') THEN
    ALTER TABLE "public"."chanq__consumers" ADD COLUMN heard_at bigint;
  END IF;
END
$chanq$;
