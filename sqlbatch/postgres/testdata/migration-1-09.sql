DO $chanq$
BEGIN
  IF to_regclass('"public"."kx_chanq_orders_dead"') IS NULL THEN
    CREATE INDEX "kx_chanq_orders_dead" ON "public"."chanq_orders_dead" (dedup_key, id) WHERE dedup_key IS NOT NULL;
  END IF;
END
$chanq$;
