DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders"') IS NULL THEN
    CREATE INDEX "ix_chanq_orders" ON "public"."chanq_orders" (slot, seq);
  END IF;
END
$chanq$;
