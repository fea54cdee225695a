DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders__dead_key"') IS NULL THEN
    CREATE INDEX "ix_chanq_orders__dead_key" ON "public"."chanq_orders__dead" (slot, order_key) WHERE order_key IS NOT NULL;
  END IF;
END
$chanq$;
