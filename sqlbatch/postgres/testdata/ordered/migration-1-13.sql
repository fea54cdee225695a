DO $chanq$
BEGIN
  IF to_regclass('"public"."lx_chanq_orders_dead"') IS NULL THEN
    CREATE INDEX "lx_chanq_orders_dead" ON "public"."chanq_orders_dead" (slot, order_key) WHERE order_key IS NOT NULL;
  END IF;
END
$chanq$;
