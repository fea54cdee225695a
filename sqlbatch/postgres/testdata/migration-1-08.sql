DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders_dead"') IS NULL THEN
    CREATE INDEX "ix_chanq_orders_dead" ON "public"."chanq_orders_dead" (ended_at, id);
  END IF;
END
$chanq$;
