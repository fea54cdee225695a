DO $chanq$
BEGIN
  IF to_regclass('"public"."ux_chanq_orders__dedup"') IS NULL THEN
    CREATE UNIQUE INDEX "ux_chanq_orders__dedup" ON "public"."chanq_orders" (dedup_key) WHERE dedup_key IS NOT NULL;
  END IF;
END
$chanq$;
