DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders_done"') IS NULL THEN
    CREATE INDEX "ix_chanq_orders_done" ON "public"."chanq_orders_done" (ended_at, id);
  END IF;
END
$chanq$;
