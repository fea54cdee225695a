DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders__dead_ended"') IS NULL THEN
    CREATE INDEX "ix_chanq_orders__dead_ended" ON "public"."chanq_orders__dead" (ended_at, id);
  END IF;
END
$chanq$;
